//! Acquiring.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_majority_grants_while_two_of_five_are_down() {
    let (stores, quorum) = five();
    set(&stores[3..], Mood::Failing(StoreErrorKind::Unreachable));
    granted(&quorum, &reentrant(1)).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 3);
    refused(&quorum, &reentrant(2)).await;
    assert_eq!(release(&quorum, 1).await, HoldStatus::Held);
    granted(&quorum, &reentrant(2)).await;
}

#[tokio::test(start_paused = true)]
async fn three_dead_stores_fail_at_once_and_leave_nothing_in_the_living() {
    let (stores, quorum) = five();
    set(&stores[2..], Mood::Failing(StoreErrorKind::Unreachable));
    let started = Instant::now();
    let answer = quorum.acquire(&reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered, "two granted");
    assert_eq!(started.elapsed(), Duration::ZERO);
    settle().await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
    quorum
        .withdraw(&reentrant(1), true)
        .await
        .expect("nothing is in the dead ones");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_unanswered_unless_it_can_have_had_no_effect() {
    let (stores, quorum) = five();
    set(&stores, Mood::Failing(StoreErrorKind::Unreachable));
    let answer = quorum.acquire(&reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unreachable);

    stores[0].set(Mood::Failing(StoreErrorKind::Transient));
    let answer = quorum.acquire(&reentrant(2)).await;
    assert_eq!(kind(answer), StoreErrorKind::Transient);

    stores[0].set(Mood::Failing(StoreErrorKind::Unanswered));
    let answer = quorum.acquire(&reentrant(3)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);

    stores[0].set(Mood::Hanging);
    let answer = quorum.acquire(&reentrant(4)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);

    stores[0].set(Mood::Well);
    granted(&stores[0], &reentrant(9)).await;
    let answer = quorum.acquire(&reentrant(5)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered, "a waiter's entry");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_counts_when_a_majority_has_it() {
    let (stores, quorum) = five();
    for (n, store) in stores.iter().enumerate() {
        if n < 2 {
            granted(store, &attempt(LockMode::Write, 9)).await;
        }
    }
    granted(&quorum, &reentrant(1)).await;
    release(&quorum, 1).await;
    granted(&stores[2], &attempt(LockMode::Write, 9)).await;
    let answer = quorum.acquire(&reentrant(2)).await;
    assert_eq!(kind(answer), StoreErrorKind::Conflict);
    settle().await;
    assert_eq!(carriers(&stores, &reentrant(2)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_split_vote_gives_everything_back_and_asks_again_soon() {
    let (stores, quorum) = five();
    granted(&stores[0], &reentrant(8)).await;
    granted(&stores[1], &reentrant(8)).await;
    granted(&stores[2], &reentrant(9)).await;
    let pause = refused(&quorum, &reentrant(1)).await;
    assert!(pause <= 8 * MS, "{pause:?}");
    settle().await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn pauses_after_split_votes_are_random_and_grow() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    let _wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let pause = refused(&quorum, &reentrant(1)).await;
        sleep(pause).await;
        pauses.push(pause);
    }
    pauses.dedup();
    assert_eq!(pauses.len(), 12, "{pauses:?}");
    assert!(pauses.iter().max() > Some(&(8 * MS)), "{pauses:?}");
    assert!(pauses.iter().max() <= Some(&(500 * MS)), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn the_hint_is_when_a_majority_will_be_free() {
    let (stores, quorum) = five();
    for (n, store) in (1..).zip(&stores) {
        let mut hold = reentrant(9);
        hold.lease = n * SECOND;
        granted(store, &hold).await;
    }
    assert_eq!(refused(&quorum, &reentrant(1)).await, 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_a_failure_is_released_after_it_came() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    stores[3].set(Mood::Hanging);
    stores[4].set(Mood::Late(2 * SECOND));
    let started = Instant::now();
    let impatient = impatient(1);
    refused(&quorum, &impatient).await;
    assert_eq!(started.elapsed(), Duration::ZERO, "the answer was certain");
    assert_eq!(carriers(&stores, &impatient).await, 1);

    sleep(SECOND).await;
    stores[3].set(Mood::Well);
    sleep(2 * SECOND).await;
    assert_eq!(carriers(&stores, &impatient).await, 0);
    assert_eq!(stores[3].log(), ["acquire", "withdraw"]);
    assert_eq!(stores[4].log(), ["acquire", "withdraw"]);
    sleep(2 * SECOND).await;
    assert!(quorum.shared.ledger.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_withdrawn_before_its_store_is_asked_again() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    stores[4].set(Mood::Unanswered);
    refused(&quorum, &reentrant(1)).await;
    settle().await;
    stores[4].set(Mood::Well);
    sleep(SECOND).await;
    refused(&quorum, &reentrant(1)).await;
    assert_eq!(stores[4].log(), ["acquire", "bury", "bury", "acquire"]);
    assert!(
        !stores[4].carries(&reentrant(1).hold).await,
        "it refuses a copy"
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_lost_too_many_stores_fails_so_that_it_gets_another_name() {
    let (stores, quorum) = five();
    set(&stores[..3], Mood::Unanswered);
    let answer = quorum.acquire(&reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
    set(&stores, Mood::Well);
    sleep(SECOND).await;
    let answer = quorum.acquire(&reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Refused, "it was withdrawn");
    settle().await;
    granted(&quorum, &reentrant(2)).await;
}

#[tokio::test(start_paused = true)]
async fn slow_and_hanging_stores_do_not_slow_a_majority() {
    let (stores, quorum) = five();
    stores[0].set(Mood::Slow(100 * MS));
    stores[1].set(Mood::Hanging);
    let started = Instant::now();
    granted(&quorum, &reentrant(1)).await;
    assert!(started.elapsed() <= 6 * MS, "{:?}", started.elapsed());
    let started = Instant::now();
    assert_eq!(
        renew(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Held
    );
    assert_eq!(
        check(&quorum, &reentrant(1)).await.unwrap(),
        HoldStatus::Held
    );
    let released = release(&quorum, 1).await;
    assert_eq!(released, HoldStatus::Held);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_leaves_too_little_of_its_lease_is_given_back() {
    let (stores, quorum) = five();
    // All stores grant at once, and the caller is busy elsewhere until the lease is over but for the drift of the clocks.
    let attempt = reentrant(1);
    stores[4].set(Mood::Slow(MS));
    let mut asking = Box::pin(quorum.acquire(&attempt));
    assert!(
        (&mut asking).now_or_never().is_none(),
        "the fifth store may grant in time"
    );
    sleep(LEASE - LEASE / 100).await;
    assert_eq!(kind(asking.await), StoreErrorKind::Unanswered);
    settle().await;
    assert_eq!(carriers(&stores, &attempt).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_never_overtakes_the_acquire_that_still_runs() {
    let (stores, quorum) = five();
    stores[0].set(Mood::Slow(SECOND));
    granted(&quorum, &reentrant(1)).await;
    stores[0].set(Mood::Well);
    release(&quorum, 1).await;
    sleep(2 * SECOND).await;
    assert_eq!(stores[0].log(), ["acquire", "withdraw"]);
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
    assert!(quorum.shared.ledger.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiters_keep_their_places_in_the_stores_that_refused_them() {
    let (stores, quorum) = five();
    granted(&quorum, &attempt(LockMode::Read, 1)).await;
    refused(&quorum, &attempt(LockMode::Write, 2)).await;
    // The waiting writer blocks new readers, in every store.
    refused(&quorum, &attempt(LockMode::Read, 3)).await;
    quorum
        .release(&attempt(LockMode::Read, 1).hold, None)
        .await
        .unwrap();
    settle().await;
    granted(&quorum, &attempt(LockMode::Write, 2)).await;
    assert_eq!(carriers(&stores, &attempt(LockMode::Write, 2)).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_granted_attempt_waits_no_longer_where_it_was_refused() {
    let (stores, quorum) = five();
    let writer = attempt(LockMode::Write, 1);
    for store in &stores[..3] {
        granted(store, &attempt(LockMode::Read, 9)).await;
    }
    stores[4].set(Mood::Slow(50 * MS));
    granted(&stores[4].memory(), &attempt(LockMode::Read, 9)).await;
    refused(&quorum, &writer).await;
    sleep(SECOND).await;
    stores[0]
        .release(&attempt(LockMode::Read, 9).hold, None)
        .await
        .unwrap();
    stores[1]
        .release(&attempt(LockMode::Read, 9).hold, None)
        .await
        .unwrap();
    granted(&quorum, &writer).await;
    sleep(200 * MS).await;
    // One store refuses in time, the other late.
    for store in [&stores[2], &stores[4]] {
        granted(&store.memory(), &attempt(LockMode::Read, 5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_has_failed_waits_in_no_store_that_answers_late() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    granted(&stores[4], &attempt(LockMode::Read, 9)).await;
    stores[4].set(Mood::Slow(50 * MS));
    let answer = quorum.acquire(&attempt(LockMode::Write, 1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Conflict);
    sleep(200 * MS).await;
    assert_eq!(carriers(&stores, &attempt(LockMode::Write, 1)).await, 0);
    // A waiting writer would block it.
    granted(&stores[4].memory(), &attempt(LockMode::Read, 5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_not_taken_back_yet_is_not_asked_for_again() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    refused(&quorum, &reentrant(1)).await;
    stores[3].set(Mood::Failing(StoreErrorKind::Unreachable));
    settle().await;
    stores[3].set(Mood::Well);
    // The next request goes on with the same name, and another lease.
    let mut shorter = reentrant(1);
    shorter.lease = LEASE / 2;
    refused(&quorum, &shorter).await;
    sleep(SECOND).await;
    assert_eq!(stores[3].log(), ["acquire", "withdraw"]);
    assert_eq!(
        stores[4].log(),
        ["acquire", "withdraw", "acquire", "withdraw"]
    );
}
