//! Processes that are killed or paused at any point.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_distributed_lock::store::WAITER_LIVENESS;
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, LockRequest};

use super::{MODES, PATIENT, SOON, client, granted, rival, works_again};
use crate::support::{Console, Peer, RedisServer, eventually};

/// The role: takes the key in the given mode and with the given lease, and releases it on command. It reports a loss only when
/// asked.
pub(crate) async fn citizen(mut console: Console) {
    let terms = console.hear().await;
    let [url, mode, lease] = terms.split(' ').collect::<Vec<_>>()[..] else {
        panic!("a URL, a mode, which is also the key, and a lease in ms: {terms}");
    };
    let lease = Duration::from_millis(lease.parse().expect("a number"));
    let known = MODES.into_iter().find(|known| known.as_str() == mode);
    let locks = client(url.to_owned()).await;
    let asking = locks.lock(mode).mode(known.expect("a mode")).wait(PATIENT);
    console.say("asking");
    let guard = asking.lease(Lease::Renewed(lease)).await.expect("granted");
    console.say("held");
    assert_eq!(console.hear().await, "release");
    console.say(match guard.release().await {
        Ok(()) => "confirmed",
        Err(LockError::Lost) => "lost",
        Err(_) => "unconfirmed",
    });
}

async fn asks(server: &RedisServer, mode: LockMode, lease: Duration) -> Peer {
    let mut peer = Peer::start("citizen");
    let (url, mode) = (server.url(), mode.as_str());
    peer.tell(format!("{url} {mode} {}", lease.as_millis()));
    assert_eq!(peer.hear().await, "asking");
    peer
}

/// A request of this process for the peer's lock.
fn contends(locks: &LockClient, mode: LockMode) -> LockRequest {
    locks.lock(mode.as_str()).mode(rival(mode)).wait(PATIENT)
}

async fn until_a_request_waits(server: &RedisServer, mode: LockMode) {
    let tagged = format!("{{{}}}", mode.as_str());
    eventually("a request waits", SOON, async || {
        let channels = server.pubsub_channels().await;
        channels.keys().any(|channel| channel.contains(&tagged))
    })
    .await;
}

/// L1, L5, L8. Also at the head of a fair queue.
#[tokio::test]
async fn a_process_killed_while_it_waits_or_queues_delays_the_others_by_seconds() {
    let server = RedisServer::start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    let in_each_mode = MODES.map(async |mode| {
        let guard = holder.lock(mode.as_str()).mode(rival(mode)).await;
        let mut dead = asks(&server, mode, Duration::from_secs(30)).await;
        until_a_request_waits(&server, mode).await;
        let behind = tokio::spawn(contends(&other, mode).acquire());
        dead.process.kill9();
        let killed = Instant::now();
        let released = guard.expect("free").release().await;
        released.expect("held all the time");
        let next = granted(behind).await;
        let limit = WAITER_LIVENESS + Duration::from_secs(7);
        assert!(killed.elapsed() < limit, "{mode:?}");
        next.release().await.expect("held");
    });
    join_all(in_each_mode).await;
    works_again(&server, &[&holder, &other]).await;
}

/// S1, S4, S5. Another client has the lock now, and the paused process learns of the loss before it can do harm.
#[tokio::test]
async fn a_process_stopped_past_its_lease_finds_its_lock_lost() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let in_each_mode = MODES.map(async |mode| {
        let mut stopped = asks(&server, mode, Duration::from_secs(3)).await;
        assert_eq!(stopped.hear().await, "held");
        let early = contends(&locks, mode).wait(Duration::from_secs(4)).await;
        let renewed = matches!(early, Err(LockError::Busy { .. }));
        assert!(renewed, "{mode:?}: {early:?}");
        stopped.process.pause();
        let overtaking = contends(&locks, mode).await.expect("it lapses");
        stopped.process.resume();
        stopped.tell("release");
        assert_eq!(stopped.hear().await, "lost", "{mode:?}");
        overtaking
            .release()
            .await
            .expect("no other client holds it");
    });
    join_all(in_each_mode).await;
    works_again(&server, &[&locks]).await;
}

/// S5. A pause that is shorter than the lease loses nothing.
#[tokio::test]
async fn a_process_stopped_for_less_than_its_lease_keeps_its_lock() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let mode = LockMode::Write;
    let mut stopped = asks(&server, mode, Duration::from_secs(30)).await;
    assert_eq!(stopped.hear().await, "held");
    stopped.process.pause();
    let waiting = tokio::spawn(contends(&locks, mode).acquire());
    until_a_request_waits(&server, mode).await;
    stopped.process.resume();
    stopped.tell("release");
    assert_eq!(stopped.hear().await, "confirmed");
    granted(waiting).await.release().await.expect("held");
    works_again(&server, &[&locks]).await;
}

/// L1. A process that does not catch the signal ends as if it was killed; `server::faults` tests a server that catches it.
#[tokio::test]
async fn a_terminated_process_frees_its_lock_within_its_lease() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let in_each_mode = MODES.map(async |mode| {
        let mut dead = asks(&server, mode, Duration::from_secs(3)).await;
        assert_eq!(dead.hear().await, "held");
        dead.process.terminate();
        dead.process.end().await;
        let dump = server.dump().await;
        assert!(dump.contains_key(mode.as_str()), "it could not release");
        let next = contends(&locks, mode).wait(SOON).await;
        next.expect("it lapses").release().await.expect("held");
    });
    join_all(in_each_mode).await;
    works_again(&server, &[&locks]).await;
}
