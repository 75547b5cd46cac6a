//! A store that fails while a request waits.

use super::*;
use crate::error::StoreErrorKind::{Transient, Unanswered, Unreachable};

/// A request whose task asks for a hold that was just released.
async fn asking() -> (Script, Waiting) {
    let (mut script, _, held, waiting) = held_and_wanted().await;
    release(&mut script, held, 0).await;
    (script, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_asked_once_more_under_another_id() {
    let (mut script, waiting) = asking().await;
    let mut asked = Vec::new();
    for _ in 0..2 {
        let (attempt, reply) = script.acquire().await;
        asked.push(attempt.hold.id);
        reply.fail(Unanswered);
    }
    assert_ne!(asked[0], asked[1]);
    // Both may still be granted.
    for id in asked {
        let (attempt, unanswered, reply) = script.withdraw().await;
        assert_eq!((attempt.hold.id, unanswered), (id, true));
        reply.send(());
    }
    let failed = waiting.await.expect("no panic").map(drop);
    assert!(
        matches!(failed, Err(LockError::Unavailable(_))),
        "{failed:?}"
    );
    script.is_quiet(LEASE).await;
}

/// What never reached the store keeps its place there. An answer between two failures says that it is back.
#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_is_asked_once_more_after_each_answer() {
    let (mut script, waiting) = asking().await;
    let (first, reply) = script.acquire().await;
    reply.fail(Unreachable);
    let (again, reply) = script.acquire().await;
    assert_eq!(again.hold.id, first.hold.id);
    reply.refuse();
    let (_, reply) = script.subscribe().await;
    let _signal = reply.listens();
    let (_, reply) = script.acquire().await;
    reply.fail(Unreachable);
    let (_, reply) = script.acquire().await;
    reply.grant();
    drop(guard(waiting).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_serve_now_is_asked_until_it_can() {
    let (mut script, waiting) = asking().await;
    let (first, mut reply) = script.acquire().await;
    for _ in 0..20 {
        let failed = script.ms();
        reply.fail(Transient);
        let attempt;
        (attempt, reply) = script.acquire().await;
        assert_eq!(attempt.hold.id, first.hold.id);
        let pause = script.ms() - failed;
        assert!((37..=51).contains(&pause), "after {pause} ms");
    }
    reply.grant();
    drop(guard(waiting).await);
}
