//! Servers that end, peers that are killed.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode};

use super::{MODES, SOON, client, know_scripts, until_nothing_is_left};
use crate::support::{Peer, Proxy, RedisServer, eventually};

const SHORT: Lease = Lease::Renewed(Duration::from_millis(600));

/// Long enough that a live process renews in time on a busy machine.
const HOLDERS_LEASE: Lease = Lease::Renewed(Duration::from_secs(3));

#[tokio::test]
async fn a_restart_loses_what_is_held_and_the_next_acquisition_works() {
    let mut redis = RedisServer::start().await;
    let locks = client(redis.url()).await;
    let mut guards = Vec::new();
    for mode in MODES {
        let key = format!("{mode:?}");
        guards.push(locks.lock(key).mode(mode).lease(SHORT).await.expect("free"));
    }
    redis.restart().await;
    for guard in guards {
        timeout(SOON, guard.lost())
            .await
            .expect("the loss is signalled");
        assert!(guard.is_lost());
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
    }
    for mode in MODES {
        let guard = eventually("it can be taken again", SOON, async || {
            locks.lock(format!("{mode:?}")).mode(mode).await
        })
        .await;
        guard.release().await.expect("held");
    }
    until_nothing_is_left(&redis).await;
}

#[tokio::test]
async fn a_killed_process_frees_its_locks_within_their_lease() {
    let redis = RedisServer::start().await;
    let locks = client(redis.url()).await;
    join_all(MODES.map(|mode| is_killed(&redis, &locks, mode))).await;
    until_nothing_is_left(&redis).await;
}

async fn is_killed(redis: &RedisServer, locks: &LockClient, mode: LockMode) {
    let mut peer = Peer::start("holder");
    peer.tell(format!("{} {}", redis.url(), mode.as_str()));
    assert_eq!(peer.hear().await, "held");
    let taken = || locks.lock(mode.as_str()).mode(excluded_by(mode));
    // Alive, it keeps its lock for longer than any lease.
    let early = taken().wait(HOLDERS_LEASE.duration() * 3 / 2).await;
    assert!(matches!(early, Err(LockError::Busy { .. })));
    peer.process.kill9();
    let killed = Instant::now();
    let guard = taken().await.expect("free soon");
    let freed = killed.elapsed();
    assert!(freed < HOLDERS_LEASE.duration() + SOON, "{freed:?}");
    guard.release().await.expect("held");
}

pub(super) fn excluded_by(mode: LockMode) -> LockMode {
    match mode {
        LockMode::Read => LockMode::Write,
        other => other,
    }
}

/// The role: holds the lock that the test names, until it is killed.
pub(crate) async fn holder(mut console: crate::support::Console) {
    let line = console.hear().await;
    let (url, mode) = line.split_once(' ').expect("a URL and a mode");
    let mode = MODES.into_iter().find(|known| known.as_str() == mode);
    let locks = client(url.to_owned()).await;
    let mode = mode.expect("a mode");
    let request = locks.lock(mode.as_str()).mode(mode);
    let guard = request.lease(HOLDERS_LEASE).await.expect("free");
    console.say("held");
    guard.lost().await;
    console.say("lost");
}

#[tokio::test]
async fn a_lock_whose_store_vanished_is_lost_at_its_deadline_and_not_later() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    let locks = client(proxy.url()).await;
    let guard = locks.lock("n").lease(SHORT).await.expect("free");
    proxy.requests.hold();
    let deadline = guard.deadline();
    timeout(SOON, guard.lost())
        .await
        .expect("the loss is signalled");
    assert!(tokio::time::Instant::now() >= deadline);
    proxy.requests.release();
    // The lost guard still exists, and does not block the next request.
    let next = locks.lock("n").await.expect("free again");
    next.release().await.expect("held");
    drop(guard);
    until_nothing_is_left(&redis).await;
}

#[tokio::test]
async fn a_release_without_an_answer_is_not_confirmed() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    let locks = client(proxy.url()).await;
    know_scripts(&locks, LockMode::Reentrant).await;
    let guard = locks.lock("n").await.expect("free");
    proxy.replies.hold();
    let releasing = tokio::spawn(guard.release());
    proxy.replies.until_caught().await;
    eventually("it was released", SOON, async || {
        !redis.dump().await.contains_key("n")
    })
    .await;
    assert!(proxy.cut(crate::support::Ending::Reset).await > 0);
    proxy.replies.release();
    let released = timeout(SOON, releasing)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(
        matches!(released, Err(LockError::Unconfirmed(_))),
        "{released:?}"
    );
}
