//! A hold belongs to its owner: no other owner can release it, and its owner learns of a loss.

use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::{LockError, LockGuard};

use super::redisson::{JavaThread, LIMIT, Version};
use super::{Kind, LEASE, Meeting, Party};

/// A guard of ours, and a thread of each version that knows its kind.
struct Case {
    kind: Kind,
    name: String,
    guard: LockGuard,
    thread: JavaThread,
}

/// Tries all cases at once; afterwards nothing is left.
async fn try_all<F: Future<Output = ()>>(attempt: impl Fn(Case) -> F) {
    let meeting = Meeting::open().await;
    let cases = cases(&meeting).await;
    let names: Vec<_> = cases.iter().map(|case| case.name.clone()).collect();
    join_all(cases.into_iter().map(attempt)).await;
    meeting.nothing_is_left(&names).await;
}

async fn cases(meeting: &Meeting) -> Vec<Case> {
    let mut cases = Vec::new();
    for version in Version::ALL {
        for kind in version.kinds() {
            for name in meeting.names() {
                let (Party::Java(thread), Party::Rust(client, _)) =
                    (meeting.java(version), meeting.rust())
                else {
                    unreachable!("that is what they are")
                };
                let guard = kind.request(&client, &name).lease(LEASE).await;
                let guard = guard.expect("the lock is free");
                cases.push(Case {
                    kind,
                    name,
                    guard,
                    thread,
                });
            }
        }
    }
    cases
}

#[tokio::test]
async fn redisson_cannot_unlock_what_we_hold() {
    try_all(async |case| {
        let Case {
            kind,
            name,
            guard,
            thread,
        } = case;
        assert!(thread.redisson.is_held(kind, &name).await.unwrap());
        assert_eq!(thread.hold_count(kind, &name).await.unwrap(), 0);
        let exception = thread.unlock(kind, &name).await.result;
        let exception = exception.expect_err("an unlock of a stranger's lock");
        assert!(exception.is_not_owner(), "{kind}: {exception}");
        guard.release().await.expect("it was ours all the time");
        assert!(!thread.redisson.is_held(kind, &name).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn redissons_force_unlock_ends_our_guard() {
    try_all(async |case| {
        let Case {
            kind,
            name,
            guard,
            thread,
        } = case;
        assert!(!guard.is_lost());
        assert!(thread.redisson.force_unlock(kind, &name).await.unwrap());
        // The next renewal finds the loss; without a renewal, the guard would be lost at the end of its
        // lease.
        let signal = tokio::time::timeout(LIMIT, guard.lost()).await;
        signal.unwrap_or_else(|_| panic!("{kind}: the guard never hears that it lost {name}"));
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
    })
    .await;
}

/// The release of a lost hold does not end the next hold, and is not confirmed.
#[tokio::test]
async fn we_cannot_unlock_what_redisson_holds() {
    try_all(async |case| {
        let Case {
            kind,
            name,
            guard,
            thread,
        } = case;
        assert!(thread.redisson.force_unlock(kind, &name).await.unwrap());
        thread.lock(kind, &name, None).await.unwrap();
        let released = guard.release().await;
        assert!(
            matches!(released, Err(LockError::Lost)),
            "{kind}: {released:?}"
        );
        assert_eq!(thread.hold_count(kind, &name).await.unwrap(), 1, "{kind}");
        assert!(thread.redisson.is_held(kind, &name).await.unwrap());
        thread.unlock(kind, &name).await.unwrap();
    })
    .await;
}

/// Redisson counts re-entries in the hash: only the last unlock frees the lock.
#[tokio::test]
async fn a_reentered_lock_of_redisson_is_free_after_the_last_unlock() {
    let meeting = Meeting::open().await;
    let mut cases = Vec::new();
    for version in Version::ALL {
        for kind in version.kinds() {
            cases.extend(meeting.names().map(|name| (version, kind, name)));
        }
    }
    let reentered = cases.iter().map(async |(version, kind, name)| {
        let (java, rust) = (meeting.java(*version), meeting.rust());
        let outer = java.lock(*kind, name, LEASE).await;
        let inner = java.lock(*kind, name, LEASE).await;
        inner.release().await;
        let granted = rust.try_lock(kind.rival(), name, Duration::ZERO).await;
        assert!(granted.is_none(), "{kind}: free after one unlock of two");
        outer.release().await;
        let granted = rust.try_lock(kind.rival(), name, Duration::ZERO).await;
        granted.expect("free after both").release().await;
    });
    join_all(reentered).await;
    meeting
        .nothing_is_left(cases.iter().map(|case| &case.2))
        .await;
}
