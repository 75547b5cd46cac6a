//! Subscriptions and wake-ups.

use super::*;

/// Whether a wake-up comes within `limit`.
async fn wakes_within(wakeups: &mut Wakeups, limit: Duration) -> bool {
    tokio::time::timeout(limit, wakeups.wait()).await == Ok(true)
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_once_and_at_once() {
    let (_, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    refused(&quorum, &reentrant(2)).await;
    let mut wakeups = quorum.subscribe(&reentrant(2)).await.unwrap();
    settle().await;
    assert!(wakeups.wait().now_or_never().is_none());
    let released = Instant::now();
    quorum.release_one(&reentrant(1).hold).await.unwrap();
    assert!(wakeups.wait().await);
    assert_eq!(released.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_majority_wakes_although_some_of_it_could_not_be_listened_to_at_first() {
    let (stores, quorum) = five();
    occupy(&stores).await;
    refused(&quorum, &reentrant(2)).await;
    stores[0].set(Mood::Hanging);
    stores[1].set(Mood::Failing(StoreErrorKind::Unreachable));
    let mut wakeups = quorum.subscribe(&reentrant(2)).await.unwrap();
    set(&stores, Mood::Well);
    sleep(2 * SECOND).await;
    // What these two did before was missed: they count as woken until the next attempt.
    refused(&quorum, &reentrant(2)).await;
    for (n, store) in stores[..3].iter().enumerate() {
        assert!(!wakes_within(&mut wakeups, SECOND).await, "{n} are free");
        store.release_one(&reentrant(9).hold).await.unwrap();
    }
    assert!(wakes_within(&mut wakeups, MS).await, "three are free");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_after_the_pause_of_a_split_vote() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    let mut wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    let pause = refused(&quorum, &reentrant(1)).await;
    let refused = Instant::now();
    stores[0].release_one(&reentrant(9).hold).await.unwrap();
    assert!(wakes_within(&mut wakeups, SECOND).await);
    assert!(refused.elapsed() >= pause, "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_without_a_majority_fails() {
    let (stores, quorum) = five();
    set(&stores[..3], Mood::Failing(StoreErrorKind::Unreachable));
    let answer = quorum.subscribe(&reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unreachable);
    set(&stores[..3], Mood::Hanging);
    let answer = quorum.subscribe(&reentrant(1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_wake_itself_by_giving_back() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    refused(&quorum, &reentrant(1)).await;
    let mut wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    refused(&quorum, &reentrant(1)).await;
    assert!(!wakes_within(&mut wakeups, 10 * SECOND).await);

    stores[0].release_one(&reentrant(9).hold).await.unwrap();
    assert!(wakes_within(&mut wakeups, MS).await, "now there are three");
}

/// A client passes the wake-ups of a waiter that has left to the next waiter for the key, which has another id.
#[tokio::test(start_paused = true)]
async fn a_waiter_with_inherited_wakeups_does_not_wake_itself_by_giving_back() {
    let (stores, quorum) = five();
    occupy(&stores).await;
    refused(&quorum, &reentrant(1)).await;
    let mut wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    quorum.withdraw(&reentrant(1), false).await.unwrap();
    for store in &stores[3..] {
        store.release_one(&reentrant(9).hold).await.unwrap();
    }
    while wakes_within(&mut wakeups, SECOND).await {}

    // Two stores grant, which refused the first waiter.
    refused(&quorum, &reentrant(2)).await;
    assert!(!wakes_within(&mut wakeups, 10 * SECOND).await);
    stores[0].release_one(&reentrant(9).hold).await.unwrap();
    assert!(wakes_within(&mut wakeups, MS).await, "now there are three");
}

#[tokio::test(start_paused = true)]
async fn an_echo_that_is_not_recognised_causes_few_questions() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    // The case of several keys: the attempt that subscribes is never sent by itself.
    let mut wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    let mut asked = 0;
    let started = Instant::now();
    while started.elapsed() < 20 * SECOND {
        asked += 1;
        refused(&quorum, &impatient(asked + 100)).await;
        wakes_within(&mut wakeups, SECOND).await;
    }
    assert!(asked < 60, "{asked} questions in 20 s");
}

#[tokio::test(start_paused = true)]
async fn nothing_listens_any_more_when_the_wakeups_are_dropped() {
    let (stores, quorum) = five();
    stores[4].set(Mood::Slow(100 * MS));
    let wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    drop(wakeups);
    sleep(SECOND).await;
    assert!(stores.iter().all(|store| store.memory().is_empty()));
    occupy(&stores[..3]).await;
    refused(&quorum, &reentrant(2)).await;
    assert!(quorum.shared.rooms.is_empty(), "only for those who listen");
}
