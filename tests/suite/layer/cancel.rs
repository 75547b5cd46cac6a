//! Clients that disconnect, handlers that panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use futures_util::FutureExt;
use http::StatusCode;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;
use tower_distributed_lock::{
    DistributedLockLayer, LockHandle, MemoryStore, OnCancel, OnLost, OnUnavailable,
};
use tower_http::timeout::TimeoutLayer;

use super::{MODES, locking, put, settle, slow_orders};

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_it_runs_or_waits_releases() {
    for mode in MODES {
        let (store, locks, layer) = locking();
        let app = slow_orders().layer(layer.mode(mode));
        let mut serving = Box::pin(put(&app, "/orders/1"));
        let mut waiting = Box::pin(put(&app, "/orders/1"));
        assert!(serving.as_mut().now_or_never().is_none());
        assert!(waiting.as_mut().now_or_never().is_none());
        settle().await;
        assert!(!store.is_free());

        drop(waiting);
        settle().await;
        drop(serving);
        settle().await;
        assert!(store.is_free(), "{mode:?}");
        assert_eq!(locks.keys_in_use(), 0, "{mode:?}");
    }
}

/// What a handler has begun, such as a transaction, is over before another request has the lock.
#[tokio::test]
async fn what_is_left_of_a_handler_is_dropped_while_the_lock_is_held() {
    struct Left(MemoryStore, Arc<AtomicUsize>);
    impl Drop for Left {
        fn drop(&mut self) {
            let held = !self.0.is_empty();
            self.1
                .fetch_add(if held { 1 } else { 100 }, Ordering::Relaxed);
        }
    }
    let (store, dropped) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (store, dropped) = (store.clone(), dropped.clone());
        move || {
            let left = Left(store.clone(), dropped.clone());
            async move {
                let _left = left;
                std::future::pending::<()>().await;
            }
        }
    };
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(DistributedLockLayer::new(store.clone()));
    let mut request = Box::pin(put(&app, "/orders/1"));
    assert!(request.as_mut().now_or_never().is_none());
    drop(request);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    assert!(store.is_empty(), "then it is released");
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_after_any_number_of_polls_releases() {
    for polls in 0..10 {
        let (store, locks, layer) = locking();
        let app = slow_orders().layer(layer);
        store.silence(true);
        let mut request = tokio_test::task::spawn(put(&app, "/orders/1"));
        for poll in 0..polls {
            let _ = request.poll();
            if poll == polls / 2 {
                store.silence(false);
            }
            settle().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(request);
        store.silence(false);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(store.is_free(), "{polls}");
        assert_eq!(locks.keys_in_use(), 0, "{polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_releases() {
    for on_cancel in [OnCancel::Drop, OnCancel::RunToCompletion] {
        let (store, locks, layer) = locking();
        let app = Router::new()
            .route("/orders/{id}", any(async || -> () { panic!("on purpose") }))
            .layer(layer.on_cancel(on_cancel));
        let panicked = AssertUnwindSafe(put(&app, "/orders/1"))
            .catch_unwind()
            .await;
        let panic = panicked.expect_err("the panic passes");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        settle().await;
        assert!(store.is_free());
        assert_eq!(locks.keys_in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn run_to_completion_finishes_under_the_lock_when_the_client_has_gone() {
    let (store, _locks, layer) = locking();
    let finished = Arc::new(AtomicUsize::new(0));
    let handler = {
        let finished = finished.clone();
        async move || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            finished.fetch_add(1, Ordering::Relaxed);
        }
    };
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(layer.on_cancel(OnCancel::RunToCompletion));
    let gone = tokio::time::timeout(Duration::from_millis(500), put(&app, "/orders/1")).await;
    assert!(gone.is_err());
    settle().await;
    assert!(!store.is_free(), "the lock is held on");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(finished.load(Ordering::Relaxed), 1);
    assert!(store.is_free());

    assert_eq!(put(&app, "/orders/1").await.status(), 200);
    assert_eq!(finished.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn run_to_completion_does_not_wait_on_for_a_client_that_has_gone() {
    let (store, _locks, layer) = locking();
    let app = slow_orders().layer(layer.on_cancel(OnCancel::RunToCompletion));
    let (served, gone) = tokio::join!(
        put(&app, "/orders/1"),
        tokio::time::timeout(Duration::from_millis(500), put(&app, "/orders/1")),
    );
    assert_eq!(served.status(), 200);
    assert!(gone.is_err());
    settle().await;
    assert!(store.is_free());
}

/// Such requests come in the outage for which the program chose `Proceed`.
#[tokio::test(start_paused = true)]
async fn run_to_completion_finishes_a_request_without_a_lock_too() {
    let (store, _locks, layer) = locking();
    store.unplug(true);
    let (finished, mut seen) = unbounded_channel();
    let handler = async move || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        finished.send(()).unwrap();
    };
    let layer = layer.on_unavailable(OnUnavailable::Proceed);
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(layer.on_cancel(OnCancel::RunToCompletion));
    let gone = tokio::time::timeout(Duration::from_millis(500), put(&app, "/orders/1")).await;
    assert!(gone.is_err());
    let finished = tokio::time::timeout(Duration::from_secs(1), seen.recv()).await;
    assert_eq!(finished, Ok(Some(())));
    assert_eq!(put(&app, "/orders/1").await.status(), 200);
}

/// It has no time limit of its own, and no lock to wait for.
#[tokio::test(start_paused = true)]
async fn a_request_that_needs_no_lock_ends_with_its_client() {
    let (_store, _locks, layer) = locking();
    let (finished, mut seen) = unbounded_channel();
    let handler = async move || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        finished.send(()).unwrap();
    };
    let write = |parts: &http::request::Parts| {
        (parts.uri.path() != "/orders/1").then_some(tower_distributed_lock::LockMode::Write)
    };
    let layer = layer.mode(write);
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(layer.on_cancel(OnCancel::RunToCompletion));
    let gone = tokio::time::timeout(Duration::from_millis(500), put(&app, "/orders/1")).await;
    assert!(gone.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(seen.try_recv().is_err());
    assert_eq!(put(&app, "/orders/1").await.status(), 200);
    assert!(seen.try_recv().is_ok());
}

/// A handler that does not end keeps no hold, however its shutdown is given up.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_given_up_gives_up_every_hold() {
    let (store, locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(std::future::pending::<()>))
        .layer(layer.on_cancel(OnCancel::RunToCompletion));
    let gone = tokio::time::timeout(Duration::from_millis(1), put(&app, "/orders/1")).await;
    assert!(gone.is_err());
    let shutting = locks.shutdown(Duration::from_secs(60));
    let given_up = tokio::time::timeout(Duration::from_secs(2), shutting).await;
    assert!(given_up.is_err());
    settle().await;
    assert!(store.is_free());
}

/// No connection is open, so a server does not wait for the handler.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_handlers_without_a_client_within_its_time_limit() {
    for (work, limit, took, lost) in [(3, 5, 3, false), (60, 5, 4, true), (60, 0, 0, true)] {
        let (store, locks, layer) = locking();
        let (ended, mut seen) = unbounded_channel();
        let handler = async move |lock: LockHandle| {
            tokio::time::sleep(Duration::from_secs(work)).await;
            ended.send(lock.is_lost()).unwrap();
        };
        let layer = layer.on_lost(OnLost::Continue);
        let app = Router::new()
            .route("/orders/{id}", any(handler))
            .layer(layer.on_cancel(OnCancel::RunToCompletion));
        let began = Instant::now();
        let gone = tokio::time::timeout(Duration::from_millis(1), put(&app, "/orders/1")).await;
        assert!(gone.is_err());
        let shut_down = locks.shutdown(Duration::from_secs(limit)).await;
        assert_eq!(shut_down.is_ok(), limit > 0, "{shut_down:?}");
        assert_eq!(began.elapsed().as_secs(), took);
        settle().await;
        assert!(store.is_free());
        assert_eq!(seen.recv().await, Some(lost));
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_releases_whether_it_stands_outside_or_inside() {
    let after_half_a_second =
        || TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(500));
    let endless = || Router::new().route("/orders/{id}", any(std::future::pending::<()>));
    let (store, _locks, layer) = locking();
    for app in [
        endless().layer(layer.clone()).layer(after_half_a_second()),
        endless().layer(after_half_a_second()).layer(layer.clone()),
    ] {
        let (one, another) = tokio::join!(put(&app, "/orders/1"), put(&app, "/orders/1"));
        assert_eq!(
            (one.status(), another.status()),
            (StatusCode::GATEWAY_TIMEOUT, StatusCode::GATEWAY_TIMEOUT)
        );
        settle().await;
        assert!(store.is_free());
    }
}
