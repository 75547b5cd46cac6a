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
    quorum.release(&reentrant(1).hold, None).await.unwrap();
    assert!(wakeups.wait().await);
    assert_eq!(released.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_majority_wakes_and_a_store_that_is_late_as_soon_as_it_is_heard() {
    let (stores, quorum) = five();
    occupy(&stores).await;
    refused(&quorum, &reentrant(2)).await;
    stores[0].set(Mood::Hanging);
    stores[1].set(Mood::Failing(StoreErrorKind::Unreachable));
    let mut wakeups = quorum.subscribe(&reentrant(2)).await.unwrap();
    set(&stores, Mood::Well);
    settle().await;
    for (n, store) in stores.iter().enumerate() {
        store.release(&reentrant(9).hold, None).await.unwrap();
        // A client releases the lock in every store.
        let is_heard = wakes_within(&mut wakeups, MS).await;
        assert_eq!(is_heard, n != 1, "the store {n} wakes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_after_the_pause_of_a_split_vote() {
    let (stores, quorum) = five();
    occupy(&stores[..3]).await;
    let mut wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
    let pause = refused(&quorum, &reentrant(1)).await;
    let refused = Instant::now();
    stores[0].release(&reentrant(9).hold, None).await.unwrap();
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

/// Two stores are free, and the others are held for long. What they grant is given back, which wakes the one who gives it back.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_wakes_itself_by_giving_back_asks_seldom() {
    for any in [false, true] {
        let (stores, quorum) = five();
        occupy(&stores[..3]).await;
        let mut wakeups = quorum.subscribe(&reentrant(1)).await.unwrap();
        let mut asked = 0;
        let started = Instant::now();
        while started.elapsed() < 20 * SECOND {
            asked += 1;
            // For any of several keys, the attempt that subscribes is never sent by itself.
            let attempt = if any {
                impatient(asked + 100)
            } else {
                reentrant(1)
            };
            refused(&quorum, &attempt).await;
            wakes_within(&mut wakeups, SECOND).await;
        }
        assert!(asked < 130, "{asked} questions in 20 s, any: {any}");
    }
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
    sleep(SECOND).await;
    assert!(quorum.shared.paces.is_empty(), "only for those who listen");
}
