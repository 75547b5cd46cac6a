//! Releases that the store does not answer.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, advance, sleep, timeout};
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::guard::Ended;
use tower_distributed_lock::{
    Lease, LockAdmin, LockClient, LockError, LockGuard, LockMode, MemoryStore, Owner,
};

use super::wired::Wired;

/// The longest that a caller waits for the answer to its release.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The end of a test that would hang.
const LONG: Duration = Duration::from_secs(60);

const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

async fn is_unconfirmed_soon(guard: LockGuard) {
    let began = Instant::now();
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Unconfirmed(_))),
        "{released:?}"
    );
    assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
}

/// S9. The caller does not wait for the whole lease; the release continues.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_store_that_is_down_no_longer_than_seconds() {
    for mode in MODES {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let lease = Lease::Fixed(Duration::from_secs(3600));
        let guard = locks.lock("1:n").mode(mode).lease(lease).await;
        let guard = guard.expect("free");
        store.cut(1);
        is_unconfirmed_soon(guard).await;
        assert!(!store.is_empty());
        store.restore(1);
        sleep(Duration::from_secs(2)).await;
        assert!(store.is_empty(), "the release has gone on");
    }
}

/// Rights and passwords may be restored, so the cause of a refusal ends, and the store may be down at that time.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_is_repeated_until_the_store_carries_it_out() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let lease = Lease::Fixed(LONG);
    let guard = locks.lock("1:n").lease(lease).await.expect("free");
    store.deny(1);
    is_unconfirmed_soon(guard).await;
    let tries = || store.calls("release", 1).len();
    sleep(Duration::from_secs(5)).await;
    assert!((4..=7).contains(&tries()), "{}", tries());
    store.cut(1);
    store.allow(1);
    sleep(Duration::from_secs(5)).await;
    store.restore(1);
    sleep(Duration::from_secs(2)).await;
    assert!(store.is_empty(), "it is free");
    let released = tries();
    sleep(LONG).await;
    assert_eq!(tries(), released, "it is released");
}

/// From then on there is nothing to release.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_always_refused_ends_with_its_lease() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let lease = Duration::from_secs(10);
    let request = locks.lock("1:n").lease(Lease::Fixed(lease));
    let guard = request.await.expect("free");
    store.deny(1);
    is_unconfirmed_soon(guard).await;
    sleep(lease * 2).await;
    let tries = store.calls("release", 1).len();
    assert!((8..=12).contains(&tries), "{tries}");
}

/// A waker of an executor of another crate.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

/// The watchdog tells of a loss. If that ended it, every lock of the client would be lost.
#[tokio::test(start_paused = true)]
async fn a_listener_whose_waker_panics_ends_no_renewals() {
    let locks = LockClient::new(Wired::default());
    let mut events = locks.events();
    let mut next = Box::pin(events.next());
    let waker = Waker::from(Arc::new(Panics));
    assert!(
        next.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let lost = locks.lock("1:lost").lease(Lease::Fixed(LONG));
    let (lost, kept) = (lost.await.expect("free"), locks.lock("2:kept").await);
    sleep(LONG * 10).await;
    assert!(lost.is_lost());
    kept.expect("free").release().await.expect("it was renewed");
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_no_grant_from_others_and_leaves_no_hold() {
    let store = Wired::default();
    store.slow(Duration::from_millis(10));
    let locks = LockClient::new(store.clone());
    let read = || Box::pin(locks.lock("1:n").mode(LockMode::Read).acquire());
    let [mut first, mut behind, mut last] = [read(), read(), read()];
    assert!((&mut first).now_or_never().is_none());
    let waker = Waker::from(Arc::new(Panics));
    let polled = behind.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert!((&mut last).now_or_never().is_none());
    let granted = tokio::spawn(first).await.expect("it does not panic here");
    drop(granted.expect("free"));
    let guard = last.now_or_never().expect("it was granted with the first");
    drop(guard.expect("free"));
    drop(behind);
    sleep(Duration::from_secs(1)).await;
    assert!(store.is_empty(), "it is released");
}

/// A deadline comes before the end of the lease in the store. A guard that was seen lost then is not released as held.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_seen_past_its_deadline_is_not_released_as_held() {
    for mode in MODES {
        let store = MemoryStore::new();
        let locks = LockClient::new(store.clone());
        let lease = Lease::Fixed(LONG);
        let guard = locks.lock("n").mode(mode).lease(lease).await;
        let guard = guard.expect("free");
        let handle = guard.handle();
        // No worker is free: the watchdog does not run.
        let _ = advance(guard.deadline() - Instant::now()).now_or_never();
        assert!(!store.is_empty(), "the store still carries it");
        assert!(guard.is_lost());
        let released = guard.release().now_or_never().expect("at once");
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        assert!(handle.is_lost() && store.is_empty());
        assert_eq!(handle.ended().now_or_never(), Some(Ended::Lost));
    }
}

/// The same for the guards that share a hold, although the store carries it on: of one key, and of several.
#[tokio::test(start_paused = true)]
async fn a_shared_hold_that_was_seen_past_its_deadline_is_not_released_as_held() {
    for keys in [&["1:n"][..], &["1:n", "2:n"]] {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let lease = Lease::Renewed(LONG);
        let read = || {
            let all = locks.lock_all(keys.iter().copied());
            all.mode(LockMode::Read).lease(lease).acquire()
        };
        let guards = [read().await.unwrap(), read().await.unwrap()];
        let deadline = guards[0].deadline();
        // No worker is free: the watchdog does not run.
        let _ = advance(deadline - Instant::now()).now_or_never();
        let [first, second] = guards;
        assert!(first.is_lost(), "{keys:?}");
        let released = first.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        let released = second.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    }
}

/// A hold that was lost is not kept until its minimum, so there is nothing to ask about.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_lost_hold_within_its_minimum_asks_nothing() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guard = locks.lock("1:n").await.expect("free");
    guard.hold_at_least(LONG).await.expect("held");
    let admin = LockAdmin::new(store.inner());
    assert!(admin.force_unlock("1:n").await.expect("it answers"));
    guard.lost().await;
    store.slow(LONG);
    let (asked, began) = (store.count(), Instant::now());
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    assert_eq!((store.count(), began.elapsed()), (asked, Duration::ZERO));
}

/// The store keeps the key, so that the next request of the process need not wait for the answer to the release.
#[tokio::test(start_paused = true)]
async fn the_next_request_asks_although_a_release_within_its_minimum_has_no_answer() {
    for several in [false, true] {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let keys = if several {
            vec!["1:n", "1:m"]
        } else {
            vec!["1:n"]
        };
        let guard = locks.lock_all(keys).await.expect("free");
        guard.hold_at_least(LONG).await.expect("held");
        let waiting = tokio::spawn(locks.lock("1:n").wait(LONG).acquire());
        sleep(Duration::from_millis(10)).await;
        let asked = store.calls("acquire", 1).len();
        store.slow(LONG);
        let releasing = tokio::spawn(guard.release());
        sleep(Duration::from_millis(10)).await;
        assert!(!releasing.is_finished(), "the store takes its time");
        let asks = store.calls("acquire", 1).len() > asked;
        assert!(asks, "several: {several}");
        waiting.abort();
    }
}

/// The same for a slow store, for several keys, and for a shared hold.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_silent_store_no_longer_than_seconds() {
    for mode in MODES {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let owner = Owner::new();
        let asking = || locks.lock("1:n").mode(mode).owner(&owner);
        let (outer, inner) = (asking().await.unwrap(), asking().await.unwrap());
        let several = locks.lock_all(["1:a", "1:b"]).mode(mode).await.unwrap();
        store.slow(Duration::from_secs(3600));
        is_unconfirmed_soon(inner).await;
        is_unconfirmed_soon(several).await;
        is_unconfirmed_soon(outer).await;
    }
}

const KEYS: usize = 250;

/// Keys of two partitions, most of them of the first.
fn many_keys() -> Vec<String> {
    let keys = (0..KEYS).map(|n| format!("1:{n}"));
    keys.chain(["2:a".to_owned(), "2:b".to_owned()]).collect()
}

/// The number of holds in each question, largest first.
fn sizes(store: &Wired, what: &str, part: u16) -> Vec<usize> {
    let calls = store.calls(what, part);
    let mut sizes: Vec<_> = calls.iter().map(|call| call.holds).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// A guard of many keys releases all of them, whether its caller waits or not.
#[tokio::test(start_paused = true)]
async fn many_keys_of_one_guard_are_released_together() {
    for mode in MODES {
        for waits in [true, false] {
            let store = Wired::default();
            let locks = LockClient::new(store.clone());
            let guard = locks.lock_all(many_keys()).mode(mode).await.unwrap();
            store.slow(Duration::from_millis(10));
            let began = Instant::now();
            match waits {
                true => guard.release().await.unwrap(),
                false => {
                    drop(guard);
                    sleep(Duration::from_millis(40)).await;
                }
            }
            let took = began.elapsed();
            assert!(took <= Duration::from_millis(40), "{mode:?}: {took:?}");
            assert_eq!(store.calls("release", 1).len(), 250, "{mode:?}");
            assert_eq!(store.calls("release", 2).len(), 2, "{mode:?}");
            assert!(store.is_empty());
        }
    }
}

/// Few questions extend them. When their minimum is over, the keys that it has left are released.
#[tokio::test(start_paused = true)]
async fn many_keys_of_one_guard_are_kept_and_released_together() {
    let lease = Lease::Renewed(Duration::from_secs(60));
    let minimum = Duration::from_secs(5);
    for waits in [true, false] {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let guard = locks.lock_all(many_keys()).lease(lease).await.unwrap();
        guard.hold_at_least(minimum).await.unwrap();
        match waits {
            true => guard.release().await.unwrap(),
            false => drop(guard),
        }
        sleep(minimum - Duration::from_millis(100)).await;
        let began = store.calls("release", 1).len();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(began, 0, "within the minimum");
        assert_eq!(sizes(&store, "renew", 1), [100, 100, 50]);
        assert_eq!(sizes(&store, "renew", 2), [2]);
        assert_eq!(store.calls("release", 1).len(), 250);
        assert_eq!(store.calls("release", 2).len(), 2);
        assert!(store.is_empty());
    }
}

/// Nothing is confirmed while a partition is silent, and the keys of the other partition are free at once.
#[tokio::test(start_paused = true)]
async fn a_part_that_is_down_keeps_only_its_own_keys() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guard = locks.lock_all(many_keys()).await.unwrap();
    store.cut(1);
    let releasing = tokio::spawn(is_unconfirmed_soon(guard));
    sleep(Duration::from_millis(100)).await;
    let free = locks.lock_all(["2:a", "2:b"]).wait(Duration::ZERO).await;
    free.expect("released").release().await.expect("held");
    releasing.await.unwrap();
    store.restore(1);
    sleep(Duration::from_secs(2)).await;
    assert!(store.is_empty(), "the release has gone on");
}

/// One key of many was lost: the release fails as lost, and all other keys are released.
#[tokio::test(start_paused = true)]
async fn one_lost_key_of_many_is_a_loss() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guard = locks.lock_all(many_keys()).await.unwrap();
    let admin = LockAdmin::new(store.inner());
    admin.force_unlock("1:7").await.unwrap();
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    assert!(store.is_empty());
}

/// The caller is dropped while the store grants many keys: each is given back.
#[tokio::test(start_paused = true)]
async fn many_keys_of_a_caller_that_left_are_given_back() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    store.slow(Duration::from_secs(1));
    let asked = locks.lock_all(many_keys()).wait(Duration::from_secs(30));
    timeout(Duration::from_millis(500), asked)
        .await
        .expect_err("not yet");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(sizes(&store, "withdraw", 1), [1; 250]);
    assert_eq!(sizes(&store, "withdraw", 2), [1; 2]);
    assert!(sizes(&store, "release", 1).is_empty());
    assert!(store.is_empty());
}

/// The extension is done and its answer is lost: the store keeps the key for the minimum, and the release is repeated until then.
#[tokio::test(start_paused = true)]
async fn a_release_after_an_unanswered_minimum_is_repeated_until_its_end() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let (lease, minimum) = (Duration::from_secs(5), Duration::from_secs(50));
    store.cut_at_renewal(1);
    let guard = locks.lock("1:n").lease(Lease::Renewed(lease)).await;
    let guard = guard.expect("free");
    let answer = guard.hold_at_least(minimum).await;
    drop(guard);
    assert!(
        matches!(answer, Err(LockError::Unavailable(_))),
        "{answer:?}"
    );
    sleep(2 * lease).await;
    assert!(!store.is_empty(), "the store keeps it");
    store.restore(1);
    sleep(Duration::from_secs(5)).await;
    assert!(store.is_empty(), "nothing is held after an error");
}

/// The extension was not executed: when the lease is over, no work is left.
#[tokio::test(start_paused = true)]
async fn a_release_after_a_minimum_that_was_not_asked_for_ends_with_its_lease() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let lease = Duration::from_secs(30);
    store.slow(Duration::from_secs(1));
    let request = locks.lock("1:n").lease(Lease::Renewed(lease));
    let day = Duration::from_secs(24 * 3600);
    let request = tokio::spawn(async move { request.await?.hold_at_least(day).await });
    sleep(Duration::from_millis(1500)).await;
    // The grant has come, and the extension is under way. No renewal is due.
    assert_eq!(store.calls("renew", 1).len(), 1);
    store.cut(1);
    let answer = request.await.expect("no panic");
    assert!(
        matches!(&answer, Err(LockError::Unavailable(error)) if error.kind() == StoreErrorKind::Unreachable),
        "{answer:?}"
    );
    store.slow(Duration::ZERO);
    sleep(2 * lease).await;
    let shutdown = locks.shutdown(Duration::from_secs(1)).await;
    shutdown.expect("no release is under way");
}

/// Its longest hold is over before the store has answered.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_release_began_in_time_is_not_lost_meanwhile() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let limit = Duration::from_secs(31);
    let guard = locks.lock("1:k").max_hold(limit).await.expect("free");
    let handle = guard.handle();
    let ended = tokio::spawn({
        let handle = handle.clone();
        async move { handle.ended().await }
    });
    // The store carries it for a moment longer than its holder may count on.
    let moment = Duration::from_millis(100);
    sleep(limit - 5 * moment).await;
    store.slow(9 * moment / 2);
    let released = tokio::spawn(guard.release());
    sleep(4 * moment).await;
    assert!(handle.deadline() < Instant::now() && !released.is_finished());
    assert!(!handle.is_lost(), "the store may still confirm it");
    released.await.unwrap().expect("held until the release");
    assert_eq!(ended.await.unwrap(), Ended::Released);
}

/// A guard that shared the hold was dropped just before.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_dropped_after_its_longest_hold_was_lost() {
    let locks = LockClient::new(MemoryStore::new());
    let limit = Duration::from_secs(31);
    let read = || locks.lock("k").mode(LockMode::Read).max_hold(limit);
    let other = read().await.expect("free");
    let guard = read().await.expect("it is shared");
    let handle = guard.handle();
    sleep(limit).await;
    assert!(handle.is_lost());
    drop(other);
    drop(guard);
    assert!(handle.is_lost(), "it was");
    assert_eq!(handle.ended().await, Ended::Lost);
}
