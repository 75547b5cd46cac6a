//! A request that lost its lock never answers with the handler's response (S5).

mod lease;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use tokio::time::Instant;
use tower_distributed_lock::layer::{ConfirmedBy, LockTiming, ReadPolicy};
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, Lease, LockError, LockHandle, OnLost, OnUnavailable, Rejection,
    ReleaseOn, key,
};

use super::store::{SLOW, TestStore};
use super::{MODES, locking, orders, problem, put, request, send, slow_orders};

const HOWS: [Confirm; 3] = [Confirm::Store, Confirm::Strict, Confirm::Deadline];

#[tokio::test(start_paused = true)]
async fn a_lock_stolen_while_the_handler_runs_is_500() {
    for confirm in [Confirm::Store, Confirm::Strict] {
        for mode in MODES {
            let (store, locks, layer) = locking();
            let app = Router::new()
                .route("/orders/{id}", any(async move || store.steal().await))
                .layer(layer.confirm(confirm).mode(mode));
            let (status, problem) = problem(put(&app, "/orders/1").await).await;
            assert_eq!(status, 500, "{confirm:?} {mode:?}");
            assert_eq!(problem["type"], "lock-lost");
            assert_eq!(locks.keys_in_use(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_expired_while_the_handler_runs_is_500_whatever_confirms() {
    for confirm in HOWS {
        for on_lost in [OnLost::Abort, OnLost::Continue] {
            let (_store, _locks, layer) = locking();
            let lease = Lease::Fixed(Duration::from_millis(500));
            let app = slow_orders().layer(layer.lease(lease).confirm(confirm).on_lost(on_lost));
            assert_eq!(
                put(&app, "/orders/1").await.status(),
                500,
                "{confirm:?} {on_lost:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_past_its_longest_hold_has_lost_its_lock() {
    for confirm in HOWS {
        let (_store, _locks, layer) = locking();
        let layer = layer.max_hold(Duration::from_millis(500)).confirm(confirm);
        let started = Instant::now();
        assert_eq!(
            put(&slow_orders().layer(layer), "/orders/1").await.status(),
            500
        );
        assert!(started.elapsed() < Duration::from_millis(600));
    }
}

/// Counts up when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn abort_drops_the_handler_at_once_and_continue_only_tells_it() {
    for (on_lost, dropped_after) in [
        (OnLost::Abort, 2_500..11_000),
        (OnLost::Continue, 60_000..61_000),
    ] {
        let (store, _locks, layer) = locking();
        let dropped = Arc::new(AtomicUsize::new(0));
        let told = Arc::new(AtomicUsize::new(0));
        let handler = {
            let (store, dropped, told) = (store.clone(), dropped.clone(), told.clone());
            async move |lock: LockHandle| {
                let _dropped = Dropped(dropped);
                store.steal().await;
                let _ = tokio::time::timeout(Duration::from_secs(60), async {
                    lock.lost().await;
                    told.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                })
                .await;
            }
        };
        let app = Router::new()
            .route("/orders/{id}", any(handler))
            .layer(layer.on_lost(on_lost));
        let started = Instant::now();
        assert_eq!(put(&app, "/orders/1").await.status(), 500);
        // The first renewal, a third of the lease away at most, finds out.
        let elapsed = started.elapsed().as_millis();
        assert!(dropped_after.contains(&elapsed), "{elapsed}");
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        if on_lost == OnLost::Continue {
            assert_eq!(told.load(Ordering::Relaxed), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_at_the_release_only_strict_is_500() {
    for (confirm, status, within) in [
        (Confirm::Store, 200, 1_100),
        (Confirm::Strict, 500, 1_100),
        (Confirm::Deadline, 200, 10),
    ] {
        for silent in [false, true] {
            let (store, _locks, layer) = locking();
            let app = Router::new()
                .route(
                    "/orders/{id}",
                    any({
                        let store = store.clone();
                        async move || {
                            store.unplug(!silent);
                            store.silence(silent);
                        }
                    }),
                )
                .layer(layer.confirm(confirm));
            let started = Instant::now();
            let response = put(&app, "/orders/1").await;
            assert_eq!(response.status(), status, "{confirm:?}, silent: {silent}");
            assert!(started.elapsed() < Duration::from_millis(within));
            // The release continues in the background.
            store.unplug(false);
            store.silence(false);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(store.is_free());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_until_the_deadline_only_the_deadline_confirms() {
    for confirm in HOWS {
        let (store, _locks, layer) = locking();
        let handler = {
            let store = store.clone();
            async move || {
                store.silence(true);
                // No renewal gets through, and the deadline passes before the release can be answered.
                tokio::time::sleep(Duration::from_millis(2_500)).await;
            }
        };
        let app = Router::new().route("/orders/{id}", any(handler)).layer(
            layer
                .lease(Lease::Renewed(Duration::from_secs(3)))
                .confirm(confirm),
        );
        let expected = if confirm == Confirm::Deadline {
            200
        } else {
            500
        };
        assert_eq!(
            put(&app, "/orders/1").await.status(),
            expected,
            "{confirm:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_can_lock_again_as_soon_as_it_has_the_response() {
    let (store, locks, layer) = locking();
    let app = super::orders().layer(layer);
    for _ in 0..10 {
        assert_eq!(put(&app, "/orders/1").await.status(), 200);
        assert!(store.is_free());
        assert_eq!(locks.keys_in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_one_resource_never_overlap() {
    let (_store, _locks, layer) = locking();
    let inside = Arc::new(AtomicUsize::new(0));
    let handler = {
        let inside = inside.clone();
        async move || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::time::sleep(Duration::from_millis(7)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(layer);
    let requests = (0..50).map(|_| put(&app, "/orders/1"));
    for response in futures_util::future::join_all(requests).await {
        assert_eq!(response.status(), 200);
    }
}

/// One of two keys is passed to the next request, which loses it before the release of the other key is answered.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_lost_after_it_was_passed_on_is_no_loss_of_the_request_before() {
    let (store, locks, _) = locking();
    let both = locks.lock_all(["order:1", SLOW]).await.expect("free");
    let next = tokio::spawn(locks.lock("order:1").acquire());
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (both, next) = tokio::join!(both.release(), async {
        let next = next.await.expect("no panic").expect("it was passed on");
        tokio::time::sleep(Duration::from_millis(100)).await;
        store.steal().await;
        next.release().await
    });
    assert!(matches!(next, Err(LockError::Lost)), "{next:?}");
    both.expect("each key was held at its release");
}

/// A handler in which the store stops answering.
fn going_silent(layer: DistributedLockLayer, store: &TestStore) -> Router {
    let store = store.clone();
    Router::new()
        .route("/orders/{id}", any(async move || store.silence(true)))
        .layer(layer)
}

/// What confirms a response.
fn confirmation(response: &axum::response::Response) -> Option<ConfirmedBy> {
    let timing = response.extensions().get::<LockTiming>()?;
    timing.confirmed_by()
}

/// Reads are confirmed so.
pub(crate) fn confirmed_by(confirm: Confirm) -> ReadPolicy {
    ReadPolicy {
        confirm,
        ..ReadPolicy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_says_whether_the_store_or_the_lease_confirmed_it() {
    for (confirm, by) in [
        (Confirm::Strict, ConfirmedBy::Store),
        (Confirm::Store, ConfirmedBy::Store),
        (Confirm::Deadline, ConfirmedBy::Lease),
    ] {
        let (_store, _locks, layer) = locking();
        let layer = layer.confirm(confirm);
        let response = put(&orders().layer(layer.clone()), "/orders/1").await;
        assert_eq!(confirmation(&response), Some(by));
        let unlocked = orders().layer(layer.mode(|_: &http::request::Parts| None));
        let response = put(&unlocked, "/orders/1").await;
        assert_eq!(confirmation(&response), None);
    }
}

#[tokio::test(start_paused = true)]
async fn reads_may_be_confirmed_otherwise_than_writes() {
    let (store, _locks, layer) = locking();
    let strict = going_silent(layer.clone().reads(confirmed_by(Confirm::Strict)), &store);
    let read = send(&strict, request("GET", "/orders/1")).await;
    assert_eq!(read.status(), 500);
    store.silence(false);
    let layer = layer.on_unavailable(OnUnavailable::Proceed);
    let available = going_silent(layer, &store);
    let write = put(&available, "/orders/2").await;
    assert_eq!(confirmation(&write), Some(ConfirmedBy::Lease));
}

#[tokio::test(start_paused = true)]
async fn of_two_locks_the_weaker_confirmation_is_that_of_the_response() {
    for (inside, outside) in [
        (Confirm::Strict, Confirm::Deadline),
        (Confirm::Deadline, Confirm::Strict),
    ] {
        let (_store, _locks, layer) = locking();
        let inner = layer.clone().confirm(inside);
        let outer = layer.key(key::path()).confirm(outside);
        let app = orders().route_layer(inner).route_layer(outer);
        let response = put(&app, "/orders/1").await;
        assert_eq!(confirmation(&response), Some(ConfirmedBy::Lease));
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_body_holds_a_lock_has_no_confirmation_of_another_layer() {
    let in_body = ReleaseOn::BodyEnd;
    for (inside, outside) in [(ReleaseOn::Head, in_body), (in_body, ReleaseOn::Head)] {
        for confirm in HOWS {
            let (_store, locks, layer) = locking();
            let layer = layer.confirm(confirm);
            let inner = layer.clone().release_on(inside);
            let outer = layer.key(key::path()).release_on(outside);
            let app = orders().route_layer(inner).route_layer(outer);
            let response = put(&app, "/orders/1").await;
            assert_eq!(response.status(), 200);
            assert!(locks.keys_in_use() > 0, "the body holds a lock");
            let found = confirmation(&response);
            assert_eq!(found, None, "{inside:?} inside, {confirm:?}");
        }
    }
}

/// For the log and for layers further out: an outage is no loss.
#[tokio::test(start_paused = true)]
async fn the_cause_of_an_unconfirmed_end_is_told() {
    for (silent, steals) in [(false, false), (true, false), (false, true)] {
        let (store, _locks, layer) = locking();
        let ending = {
            let store = store.clone();
            async move || {
                match steals {
                    true => store.steal().await,
                    false => store.unplug(!silent),
                }
                store.silence(silent);
            }
        };
        let app = Router::new()
            .route("/orders/{id}", any(ending))
            .layer(layer);
        let response = put(&app, "/orders/1").await;
        assert_eq!(response.status(), 500);
        let cause = response.extensions().get::<Rejection>().unwrap().cause();
        let is_told = match cause {
            Some(LockError::Lost) => steals,
            Some(LockError::Unconfirmed(_)) => !steals,
            _ => false,
        };
        assert!(is_told, "{silent} {steals}: {cause:?}");
    }
}
