//! What a request that is over leaves in the store.

use super::*;
use crate::error::StoreErrorKind::{Refused, Unanswered, Unreachable};
use crate::exploration::script::Reply;
use crate::store::Outcome;

/// A request that is dropped while it asks once, with the answer that is still to come.
async fn dropped() -> (Script, LockClient, Reply<Outcome>) {
    let (mut script, locks) = Script::client(0);
    let request = locks.lock("k").lease(Lease::Fixed(LEASE));
    let asking = tokio::spawn(request.wait(Duration::ZERO).acquire());
    let (_, reply) = script.acquire().await;
    asking.abort();
    drop(asking.await);
    (script, locks, reply)
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_without_patience_leaves_nothing_to_withdraw() {
    let (mut script, locks) = Script::client(0);
    let refusing = async {
        let (_, reply) = script.acquire().await;
        reply.refuse();
        script.is_quiet(LEASE).await;
    };
    let once = locks.lock("k").wait(Duration::ZERO).acquire();
    let (refused, ()) = tokio::join!(once, refusing);
    assert!(matches!(refused, Err(LockError::Busy { .. })));

    let (mut script, _locks, reply) = dropped().await;
    reply.refuse();
    script.is_quiet(LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_request_is_withdrawn() {
    let (mut script, _locks, reply) = dropped().await;
    reply.grant();
    let (_, unanswered, reply) = script.withdraw().await;
    assert!(!unanswered, "no copy of it is on its way");
    reply.send(());
    script.is_quiet(LEASE).await;
}

/// Any of them may be held, whatever the store says of the one that failed.
#[tokio::test(start_paused = true)]
async fn all_of_several_attempts_are_withdrawn_after_an_error() {
    let (mut script, locks) = Script::client(0);
    let asking = locks.lock_all(["a", "b"]).wait(Duration::ZERO);
    let asking = tokio::spawn(asking.acquire());
    let (_, reply) = script.acquire().await;
    reply.grant();
    let (_, reply) = script.acquire().await;
    reply.fail(Refused);
    // By the store, which asks for one after the other.
    let (_, reply) = script.release().await;
    reply.send(HoldStatus::Held.into());
    let failed = asking.await.expect("no panic").map(drop);
    assert!(
        matches!(failed, Err(LockError::Unavailable(_))),
        "{failed:?}"
    );
    for key in ["a", "b"] {
        let (attempt, unanswered, _) = script.withdraw().await;
        assert_eq!((attempt.hold.key.as_str(), unanswered), (key, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_repeated_until_the_lease_is_over() {
    let (mut script, _locks, reply) = dropped().await;
    reply.fail(Unanswered);
    while script.ms() < LEASE.as_millis() {
        let (_, unanswered, reply) = script.withdraw().await;
        assert!(unanswered);
        reply.fail(Unreachable);
    }
    script.is_quiet(LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_the_store_refuses_is_not_repeated() {
    let (mut script, _locks, reply) = dropped().await;
    reply.fail(Unanswered);
    let (.., reply) = script.withdraw().await;
    reply.fail(Refused);
    script.is_quiet(LEASE).await;
}
