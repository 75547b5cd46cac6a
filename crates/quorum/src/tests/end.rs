//! Releasing and withdrawing.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_release_is_confirmed_by_a_majority() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    stores[0].forget();
    stores[1].set(Mood::Hanging);
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Held);
    stores[1].set(Mood::Well);
    settle().await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Gone);
}

/// Such as a quorum that is a store of a quorum.
#[tokio::test(start_paused = true)]
async fn a_store_that_could_not_decide_is_released_when_the_others_have() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    stores[0].set(Mood::Undecided);
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Held);
    stores[0].set(Mood::Well);
    sleep(SECOND).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_a_majority_forgot_is_gone() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    for store in &stores[..3] {
        store.forget();
    }
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Gone);
    settle().await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_takes_several_tries_keeps_earlier_answers() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores[2..], Mood::Failing(StoreErrorKind::Unreachable));
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered, "two released");
    stores[2].set(Mood::Well);
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Held);
    assert_eq!(stores[0].log(), ["acquire", "release"]);

    // Stores that could not be reached are released when they answer again.
    set(&stores, Mood::Well);
    sleep(SECOND).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
    assert!(quorum.shared.ledger.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_may_have_released_without_an_answer_does_not_count() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores[..3], Mood::Unanswered);
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
    set(&stores, Mood::Well);
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(
        kind(answer),
        StoreErrorKind::Unanswered,
        "neither held nor gone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_does_not_confirm_a_time_that_it_did_not_see() {
    let (stores, quorum) = five();
    // Two stores grant late to the first client; two others lose the hold.
    set(&stores[3..], Mood::Slow(SECOND));
    granted(&quorum, &reentrant(1)).await;
    stores[0].forget();
    stores[1].forget();
    set(&stores[3..], Mood::Well);
    // A second client takes the lock and releases it, confirmed.
    let other = QuorumStore::new(stores.clone()).unwrap();
    granted(&other, &reentrant(2)).await;
    let released = other
        .release(&reentrant(2).hold, None)
        .await
        .unwrap()
        .status;
    assert_eq!(released, HoldStatus::Held);
    // Then the late grants arrive: a majority carries the first client's hold, but not all the time.
    sleep(2 * SECOND).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 3);
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_reached_no_store_is_not_confirmed() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores, Mood::Failing(StoreErrorKind::Unreachable));
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(kind(answer), StoreErrorKind::Unreachable);
    set(&stores, Mood::Hanging);
    let started = Instant::now();
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
    assert_eq!(started.elapsed(), STORE_TIMEOUT);
}

/// Such as stores whose replicas are away: the hold has ended there, and a failover may undo that.
#[tokio::test(start_paused = true)]
async fn a_release_that_too_few_replicas_acknowledged_is_unanswered_and_not_without_effect() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores, Mood::Failing(StoreErrorKind::Unreachable));
    stores[0].set(Mood::Failing(StoreErrorKind::Unacknowledged));
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
    let answer = renew(&quorum, &reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
    let answer = quorum.acquire(&reentrant(2)).await;
    assert_eq!(kind(answer), StoreErrorKind::Transient, "it is taken back");
}

/// Such as stores whose user lacked a right for a while.
#[tokio::test(start_paused = true)]
async fn a_release_that_was_refused_leaves_the_proof_that_the_hold_was_lost() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores, Mood::Failing(StoreErrorKind::Refused));
    let answer = quorum.release(&reentrant(1).hold, None).await;
    assert_eq!(kind(answer), StoreErrorKind::Refused);
    set(&stores, Mood::Well);
    stores[..3].iter().for_each(Scripted::forget);
    assert_eq!(release(&quorum, 1).await, HoldStatus::Gone);
}

#[tokio::test(start_paused = true)]
async fn what_is_withdrawn_is_final_even_if_a_copy_arrives() {
    let (stores, quorum) = five();
    stores[0].set(Mood::Failing(StoreErrorKind::Unreachable));
    stores[1].set(Mood::Unanswered);
    granted(&quorum, &reentrant(1)).await;
    quorum.withdraw(&reentrant(1), true).await.unwrap();
    set(&stores, Mood::Well);
    sleep(SECOND).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
    let copy = quorum.acquire(&reentrant(1)).await;
    assert!(!matches!(copy, Ok(Outcome::Granted { .. })), "{copy:?}");
    granted(&quorum, &reentrant(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_needs_a_majority_of_answers_and_goes_on_in_the_background() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores[..3], Mood::Failing(StoreErrorKind::Transient));
    let answer = quorum.withdraw(&reentrant(1), false).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
    set(&stores, Mood::Well);
    sleep(SECOND).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_dead_is_not_asked_for_ever() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    set(&stores[..2], Mood::Failing(StoreErrorKind::Unreachable));
    release(&quorum, 1).await;
    settle().await;
    assert!(!quorum.shared.ledger.is_empty());
    sleep(60 * SECOND).await;
    assert!(quorum.shared.ledger.is_empty());
}
