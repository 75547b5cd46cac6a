//! Who asks first, who listens, and under whose terms.

use super::*;
use crate::error::StoreErrorKind;

/// Its holder learns only at its next renewal that it was broken from outside.
#[tokio::test(start_paused = true)]
async fn the_hold_that_others_wait_for_is_checked_once_a_second() {
    let (mut script, _locks, held, waiting) = held_and_wanted().await;
    let mut before = 0;
    for status in [HoldStatus::Held, HoldStatus::Held, HoldStatus::Gone] {
        let (checks, reply) = script.renew().await;
        assert_eq!((checks.len(), checks[0].lease), (1, None));
        let pause = script.ms() - before;
        assert!((1000..=1250).contains(&pause), "after {pause} ms");
        before = script.ms();
        reply.send(vec![status]);
    }
    // It is lost, and free for the next.
    let (_, reply) = script.acquire().await;
    assert_eq!(script.ms(), before);
    reply.grant();
    drop(guard(waiting).await);
    assert!(held.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_may_be_free_is_asked_for_before_anyone_listens() {
    let (mut script, _locks, held, _waiting) = held_and_wanted().await;
    let before = script.ms();
    release(&mut script, held, 0).await;
    let (_, reply) = script.acquire().await;
    reply.refuse();
    script.subscribe().await;
    assert_eq!(script.ms(), before);
}

/// They wait for a message. This process, which needs none, would always be first.
#[tokio::test(start_paused = true)]
async fn those_whom_a_release_woke_ask_first() {
    let (mut script, _locks, held, waiting) = held_and_wanted().await;
    release(&mut script, held, 1).await;
    let released = script.ms();
    let (_, reply) = script.subscribe().await;
    let _signal = reply.listens();
    let (_, reply) = script.acquire().await;
    let after = script.ms() - released;
    assert!((2..=6).contains(&after), "after {after} ms");
    reply.grant();
    drop(guard(waiting).await);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_ends_the_turn_of_the_others() {
    let (mut script, _locks, held, _waiting) = held_and_wanted().await;
    release(&mut script, held, 1).await;
    let released = script.ms();
    let (_, reply) = script.subscribe().await;
    let signal = reply.listens();
    script.is_quiet(Duration::from_millis(1)).await;
    signal.send(()).expect("it listens");
    script.acquire().await;
    assert_eq!(script.ms() - released, 1);
}

/// The one whom the release has woken is the process itself.
#[tokio::test(start_paused = true)]
async fn a_process_that_listens_alone_yields_to_no_other() {
    let (mut script, locks) = Script::client(0);
    let (first, _, signal) = refused(&mut script, &locks).await;
    let _second = wait(&locks, LEASE);
    signal.send(()).expect("it listens");
    let (_, reply) = script.acquire().await;
    reply.grant();
    let (first, before) = (guard(first).await, script.ms());
    release(&mut script, first, 1).await;
    let (_, reply) = script.acquire().await;
    assert_eq!(script.ms(), before);
    // The subscription ends after it has served, and the next one does not wait.
    drop(signal);
    reply.refuse();
    script.subscribe().await;
    assert_eq!(script.ms(), before);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_could_not_subscribe_yields_to_the_one_that_was_woken() {
    let (mut script, locks) = Script::client(0);
    let first = wait(&locks, LEASE);
    let (_, reply) = script.acquire().await;
    reply.refuse_for(Duration::from_millis(99));
    let (_, reply) = script.subscribe().await;
    reply.fail(StoreErrorKind::Transient);
    let _second = wait(&locks, LEASE);
    // It polls.
    let (_, reply) = script.acquire().await;
    assert_eq!(script.ms(), 100);
    reply.grant();
    let first = guard(first).await;
    release(&mut script, first, 1).await;
    let released = script.ms();
    let (_, reply) = script.subscribe().await;
    reply.fail(StoreErrorKind::Transient);
    script.acquire().await;
    assert!(script.ms() - released >= 2);
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_request_that_left_is_that_of_the_next_on_its_own_terms() {
    let (mut script, locks) = Script::client(0);
    let (first, place, _signal) = refused(&mut script, &locks).await;
    let second = wait(&locks, LEASE * 2);
    script.is_quiet(Duration::from_millis(50)).await;
    first.abort();
    let (attempt, reply) = script.acquire().await;
    assert_eq!(attempt.hold.id, place.hold.id);
    assert_eq!((place.lease, attempt.lease), (LEASE, LEASE * 2));
    reply.grant();
    drop(guard(second).await);
}

/// Only permits may be free side by side.
#[tokio::test(start_paused = true)]
async fn an_exclusive_lock_is_asked_for_by_one_question_at_a_time() {
    let (mut script, locks, mut held, waiting) = held_and_wanted().await;
    let mut line = vec![waiting];
    line.extend((0..4).map(|_| wait(&locks, LEASE)));
    for waiting in line {
        release(&mut script, held, 0).await;
        let (_, reply) = script.acquire().await;
        script.is_quiet(Duration::from_millis(1)).await;
        reply.grant();
        held = guard(waiting).await;
    }
}
