//! Drops, and the clean-up after them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tower_distributed_lock::guard::Ended;
use tower_distributed_lock::{LockClient, LockError, LockMode, Owner};

use super::wired::Wired;

const MS: Duration = Duration::from_millis(1);

/// The most releases that the background sends at once to one partition.
const AT_ONCE: usize = 100;

/// The store's contract: each of its futures is driven to its end, even if the caller is dropped.
#[tokio::test(start_paused = true)]
async fn no_future_of_a_store_is_dropped_before_its_end() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let held = locks.lock("n").await.expect("free");
    store.slow(10 * MS);
    for millis in 0..60 {
        let gone = |asking| timeout(millis * MS, asking);
        let _ = gone(locks.lock("n").acquire()).await;
        let _ = gone(locks.lock("n").mode(LockMode::Fair).acquire()).await;
        let _ = gone(locks.lock_all(["m", "n"]).acquire()).await;
        let _ = gone(locks.lock_any(["n"]).acquire()).await;
        let _ = gone(locks.lock("free").acquire()).await;
        let _ = timeout(millis * MS, locks.audit()).await;
        let limit = Duration::from_millis(u64::from(millis));
        let _ = locks.lock("n").wait(limit).await;
    }
    sleep(1000 * MS).await;
    assert_eq!(store.abandoned(), Vec::<&str>::new());
    drop(held);
    sleep(1000 * MS).await;
    assert!(store.is_empty());
}

/// A release that its caller drops before, while or after the store is asked asks once, and goes on.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_dropped_at_any_moment_is_asked_once() {
    const RELEASES: u32 = 30;
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    store.slow(10 * MS);
    for millis in 0..RELEASES / 2 {
        let guard = locks.lock("n").await.expect("free");
        drop(guard.release());
        let guard = locks.lock("n").await.expect("released in the background");
        let _ = timeout(millis * MS, guard.release()).await;
    }
    sleep(1000 * MS).await;
    assert_eq!(store.abandoned(), Vec::<&str>::new());
    assert_eq!(store.calls("release", 0).len(), RELEASES as usize);
    assert!(store.is_empty());
}

/// A store that panics has not answered: it is asked again.
#[tokio::test(start_paused = true)]
async fn a_release_that_panics_is_asked_again() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guard = locks.lock("n").await.expect("free");
    let handle = guard.handle();
    store.slow(10 * MS);
    store.panic_in_release();
    guard.release().await.expect("held");
    assert_eq!(
        timeout(1000 * MS, handle.ended()).await,
        Ok(Ended::Released)
    );
    locks.shutdown(1000 * MS).await.expect("nothing is left");
}

/// A thousand guards that are dropped together are released in turn.
#[tokio::test(start_paused = true)]
async fn guards_that_are_dropped_together_are_released_a_few_at_a_time() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let asking = (0..1000).map(|n| locks.lock(format!("1:{n}")).acquire());
    let guards = join_all(asking).await;
    let elsewhere = locks.lock("2:n").await.expect("free");
    store.slow(10 * MS);
    store.most_in_flight();
    drop(guards);
    // A caller that waits for its answer does not queue behind these releases, and neither does another partition.
    let waited = locks.lock("1:other").await.expect("free");
    timeout(20 * MS, waited.release())
        .await
        .expect("at once")
        .expect("held");
    drop(elsewhere);
    sleep(15 * MS).await;
    assert_eq!(store.calls("release", 2).len(), 1);
    sleep(1000 / AT_ONCE as u32 * 10 * MS).await;
    assert!(store.is_empty());
    let most = store.most_in_flight();
    assert!(most <= AT_ONCE + 3, "{most} at once");
}

/// A partition that is down does not delay the clean-up of the others.
#[tokio::test(start_paused = true)]
async fn clean_up_of_one_part_does_not_wait_for_another_that_is_down() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let all = (0..2000).map(|n| locks.lock(format!("{}:{n}", 1 + n % 2)).acquire());
    let guards = join_all(all).await;
    store.cut(1);
    drop(guards);
    sleep(2000 * MS).await;
    assert_eq!(store.calls("release", 2).len(), 1000);
    store.restore(1);
    sleep(5000 * MS).await;
    assert!(store.is_empty());
}

/// An answer of the wrong size is an error; grants that it may contain are withdrawn.
#[tokio::test(start_paused = true)]
async fn an_answer_about_too_few_holds_confirms_nothing() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let owner = Owner::new();
    let asking = || locks.lock("n").owner(&owner);
    let (outer, inner) = (asking().await.unwrap(), asking().await.unwrap());
    store.answer_wrongly(true);
    let released = inner.release().await;
    assert!(
        matches!(released, Err(LockError::Unconfirmed(_))),
        "{released:?}"
    );
    outer.release().await.expect("one hold has one answer");
}

/// The hold that is missing in the answer may also be held: a guard has every key, and the previous attempts are withdrawn.
#[tokio::test(start_paused = true)]
async fn an_answer_about_too_few_grants_leaves_nothing() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    store.answer_wrongly(true);
    let asking = locks.lock_all(["a", "b", "c"]).await;
    match asking {
        Ok(guard) => {
            assert_eq!(guard.keys().count(), 3);
            guard.release().await.expect("each is held");
        }
        Err(error) => assert!(matches!(error, LockError::Unavailable(_)), "{error:?}"),
    }
    store.answer_wrongly(false);
    sleep(1000 * MS).await;
    for key in ["a", "b", "c"] {
        let free = locks.lock(key).wait(Duration::ZERO).await;
        free.expect("it was taken back")
            .release()
            .await
            .expect("held");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_key_that_was_not_asked_for_is_an_error() {
    let store = Wired::default();
    let [locks, other] = [(); 2].map(|()| LockClient::new(store.clone()));
    let held = other.lock("b").await.unwrap();
    store.answer_wrongly(true);
    let asking = locks.lock_all(["a", "b"]).wait(Duration::ZERO).await;
    assert!(
        matches!(asking, Err(LockError::Unavailable(_))),
        "{asking:?}"
    );
    store.answer_wrongly(false);
    held.release().await.expect("held");
    let both = locks.lock_all(["a", "b"]).wait(Duration::ZERO).await;
    both.expect("both are free").release().await.expect("held");
}

/// Requests that queue for locks of a partition that is down get an error, however many releases fail there.
#[tokio::test(start_paused = true)]
async fn releases_that_fail_keep_no_waiter_from_asking() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let asking = (0..300).map(|n| locks.lock(format!("1:{n}")).acquire());
    let guards = join_all(asking).await;
    let waiting = (0..300).map(|n| tokio::spawn(locks.lock(format!("1:{n}")).acquire()));
    let waiting: Vec<_> = waiting.collect();
    sleep(MS).await;
    store.cut(1);
    // There is no hand-over: the turn to ask follows the release.
    sleep(100 * MS).await;
    drop(guards);
    for waiter in waiting {
        let refused = timeout(1000 * MS, waiter).await.expect("soon").unwrap();
        assert!(
            matches!(refused, Err(LockError::Unavailable(_))),
            "{refused:?}"
        );
    }
}
