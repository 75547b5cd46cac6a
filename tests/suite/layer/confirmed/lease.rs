//! What the lease alone confirms.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use tokio::time::Instant;
use tower_distributed_lock::layer::ConfirmedBy;
use tower_distributed_lock::{Confirm, Lease, LockHandle, LockKey, LockMode, OnLost};

use super::super::store::{SILENT, UNDECIDED};
use super::super::{MODES, locking, put, request, send};
use super::going_silent;

#[tokio::test(start_paused = true)]
async fn a_write_that_the_store_does_not_confirm_is_never_answered_by_default_and_a_read_says_so() {
    for (method, status, confirmation) in [
        ("PUT", 500, None),
        ("POST", 500, None),
        ("GET", 200, Some(ConfirmedBy::Lease)),
    ] {
        let (store, _locks, layer) = locking();
        let app = going_silent(layer, &store);
        let response = send(&app, request(method, "/orders/1")).await;
        assert_eq!(response.status(), status, "{method}");
        let found = super::confirmation(&response);
        assert_eq!(found, confirmation, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_hold_is_lost_and_whose_release_is_unanswered_is_500() {
    let (store, _locks, layer) = locking();
    let handler = {
        let store = store.clone();
        async move || {
            // A failover loses the hold, and the connection delivers no answer.
            store.steal().await;
            store.silence(true);
        }
    };
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(layer);
    assert_eq!(put(&app, "/orders/1").await.status(), 500);
}

/// The handler learns of the loss and goes on. Then the store is silent or unreachable, and the lease has not expired.
#[tokio::test(start_paused = true)]
async fn a_read_whose_hold_was_found_lost_is_not_confirmed_by_its_lease() {
    for keys in [1, 2] {
        for silent in [false, true] {
            for mode in MODES {
                let (store, _locks, layer) = locking();
                let handler = {
                    let store = store.clone();
                    async move |lock: LockHandle| {
                        store.steal().await;
                        lock.lost().await;
                        assert!(lock.deadline() > Instant::now() + Duration::from_secs(10));
                        store.unplug(!silent);
                        store.silence(silent);
                    }
                };
                let layer = layer.on_lost(OnLost::Continue).mode(mode);
                let layer = layer.key(move |_: &http::request::Parts| {
                    let keys = (0..keys).map(|key: u8| LockKey::new(format!("order:{key}")));
                    keys.collect::<Vec<_>>()
                });
                let app = Router::new()
                    .route("/orders/{id}", any(handler))
                    .layer(layer);
                let status = send(&app, request("GET", "/orders/1")).await.status();
                assert_eq!(status, 500, "{keys} keys, silent: {silent}, {mode:?}");
            }
        }
    }
}

/// Two reads share a hold. The first one ends after both have learned of the loss.
#[tokio::test(start_paused = true)]
async fn a_read_that_shares_a_lost_hold_is_not_confirmed_by_its_lease() {
    let (store, _locks, layer) = locking();
    let handler = {
        let store = store.clone();
        async move |lock: LockHandle| {
            store.steal().await;
            lock.lost().await;
            store.unplug(true);
        }
    };
    let other = async move |lock: LockHandle| {
        lock.lost().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    let layer = layer.on_lost(OnLost::Continue).mode(LockMode::Read);
    let layer = layer.key(|_: &http::request::Parts| LockKey::new("orders"));
    let app = Router::new()
        .route("/first", any(handler))
        .route("/other", any(other))
        .layer(layer);
    let (other, first) = tokio::join!(
        send(&app, request("GET", "/other")),
        send(&app, request("GET", "/first")),
    );
    assert_eq!(first.status(), 500);
    assert_eq!(other.status(), 500);
}

/// The release finds one of several keys lost, and gets no answer about another one.
#[tokio::test(start_paused = true)]
async fn a_request_that_loses_one_of_its_keys_is_not_confirmed_by_its_lease() {
    for other in [SILENT, UNDECIDED] {
        for mode in MODES {
            for lost in [false, true] {
                let (store, _locks, layer) = locking();
                let handler = async move || {
                    if lost {
                        store.steal().await;
                    }
                };
                let layer = layer.mode(mode).confirm(Confirm::Store);
                let layer = layer.key(move |_: &http::request::Parts| {
                    vec![LockKey::new("order:1"), LockKey::new(other)]
                });
                let app = Router::new().route("/orders", any(handler)).layer(layer);
                let status = send(&app, request("GET", "/orders")).await.status();
                let expected = if lost { 500 } else { 200 };
                assert_eq!(status, expected, "{other}, {mode:?}, lost: {lost}");
            }
        }
    }
}

/// Two reads share a hold. The first one ends, the store does not answer its owner check, and a renewal finds the loss.
#[tokio::test(start_paused = true)]
async fn a_read_that_is_lost_while_the_store_is_asked_is_not_confirmed_by_its_lease() {
    for lost in [false, true] {
        for keys in [&[SILENT][..], &[SILENT, "order:1"]] {
            let (store, _locks, layer) = locking();
            let handler = async move || {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if lost {
                    store.steal().await;
                }
            };
            let other = async || tokio::time::sleep(Duration::from_secs(5)).await;
            // Renewed each 0.8 s at the latest, which is less than the store has for its answer.
            let lease = Lease::Renewed(Duration::from_millis(2400));
            let layer = layer.lease(lease).mode(LockMode::Read);
            let layer = layer.key(move |_: &http::request::Parts| {
                keys.iter().copied().map(LockKey::new).collect::<Vec<_>>()
            });
            let app = Router::new()
                .route("/first", any(handler))
                .route("/other", any(other))
                .layer(layer);
            let (_, first) = tokio::join!(
                send(&app, request("GET", "/other")),
                send(&app, request("GET", "/first")),
            );
            let expected = if lost { 500 } else { 200 };
            assert_eq!(first.status(), expected, "{keys:?}, lost: {lost}");
        }
    }
}
