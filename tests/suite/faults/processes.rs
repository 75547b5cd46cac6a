//! Processes that die or stand still, whatever they are at.

use std::time::{Duration, Instant};

use tower_distributed_lock::store::WAITER_LIVENESS;
use tower_distributed_lock::{Lease, LockError};

use super::{MODES, PATIENT, SOON, client, granted, rival, works_again};
use crate::support::{Console, Peer, RedisServer, eventually};

/// Takes `n` in the mode and with the lease that it is told, and releases it when it is told to. It holds its tongue about a
/// lock that it has lost until somebody asks.
pub(crate) async fn citizen(mut console: Console) {
    let terms = console.hear().await;
    let [url, mode, lease] = terms.split(' ').collect::<Vec<_>>()[..] else {
        panic!("a URL, a mode and a lease in ms: {terms}");
    };
    let lease = Duration::from_millis(lease.parse().expect("a number"));
    let mode = MODES.into_iter().find(|known| known.as_str() == mode);
    let locks = client(url.to_owned()).await;
    let asking = locks.lock("n").mode(mode.expect("a mode")).wait(PATIENT);
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

async fn asks(server: &RedisServer, mode: &str, lease: Duration) -> Peer {
    let mut peer = Peer::start("citizen");
    peer.tell(format!("{} {mode} {}", server.url(), lease.as_millis()));
    assert_eq!(peer.hear().await, "asking");
    peer
}

async fn until_it_waits(server: &RedisServer) {
    eventually("it waits", SOON, async || {
        !server.pubsub_channels().await.is_empty()
    })
    .await;
}

/// L1, L5, L8. In a fair queue, too, where it stood at the head of the line.
#[tokio::test]
async fn a_process_killed_while_it_waits_or_queues_delays_the_others_by_seconds() {
    let server = RedisServer::start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    for mode in MODES {
        let guard = holder.lock("n").mode(rival(mode)).await.expect("free");
        let mut dead = asks(&server, mode.as_str(), Duration::from_secs(30)).await;
        until_it_waits(&server).await;
        let behind = tokio::spawn(other.lock("n").mode(rival(mode)).wait(PATIENT).acquire());
        dead.process.kill9();
        let killed = Instant::now();
        guard.release().await.expect("held all the time");
        let next = granted(behind).await;
        assert!(
            killed.elapsed() < WAITER_LIVENESS + Duration::from_secs(7),
            "{mode:?}"
        );
        next.release().await.expect("held");
        works_again(&server, &[&holder, &other]).await;
    }
}

/// S1, S4, S5. It was overtaken, and finds out before it can do harm.
#[tokio::test]
async fn a_process_stopped_past_its_lease_finds_its_lock_lost() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    for mode in MODES {
        let mut stopped = asks(&server, mode.as_str(), Duration::from_millis(1500)).await;
        assert_eq!(stopped.hear().await, "held");
        let early = locks
            .lock("n")
            .mode(rival(mode))
            .wait(Duration::from_secs(3));
        let early = early.await;
        assert!(
            matches!(early, Err(LockError::Busy { .. })),
            "it is renewed: {early:?}"
        );
        stopped.process.pause();
        let overtaking = locks.lock("n").mode(rival(mode)).wait(SOON).await;
        let overtaking = overtaking.expect("it lapses");
        stopped.process.resume();
        stopped.tell("release");
        assert_eq!(stopped.hear().await, "lost", "{mode:?}");
        overtaking.release().await.expect("it is nobody else's");
        works_again(&server, &[&locks]).await;
    }
}

/// S5. A pause that is shorter than the lease is forgiven.
#[tokio::test]
async fn a_process_stopped_for_less_than_its_lease_keeps_its_lock() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let mut stopped = asks(&server, "write", Duration::from_secs(30)).await;
    assert_eq!(stopped.hear().await, "held");
    stopped.process.pause();
    let waiting = tokio::spawn(
        locks
            .lock("n")
            .wait(PATIENT)
            .mode(rival(MODES[3]))
            .acquire(),
    );
    until_it_waits(&server).await;
    stopped.process.resume();
    stopped.tell("release");
    assert_eq!(stopped.hear().await, "confirmed");
    granted(waiting).await.release().await.expect("held");
    works_again(&server, &[&locks]).await;
}

/// L1. Whoever does not catch the signal ends as if it was killed; `server::faults` has the server that does.
#[tokio::test]
async fn a_terminated_process_frees_its_lock_within_its_lease() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    for mode in MODES {
        let mut dead = asks(&server, mode.as_str(), Duration::from_millis(1500)).await;
        assert_eq!(dead.hear().await, "held");
        dead.process.terminate();
        dead.process.end().await;
        assert!(
            server.dump().await.contains_key("n"),
            "it could not release"
        );
        let next = locks.lock("n").mode(rival(mode)).wait(SOON).await;
        next.expect("it lapses").release().await.expect("held");
        works_again(&server, &[&locks]).await;
    }
}
