//! Logs and metrics.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient, LockMode};

use super::store::TestStore;
use super::{locking, put, settle};

pub(crate) mod logs;
mod metrics;

/// A path that a client chose.
const SECRET: &str = "/orders/secret";

/// Every outcome of a request, on one route.
async fn everything() -> (TestStore, LockClient) {
    let (store, locks, layer) = locking();
    let app = |seconds: u64, steals: bool| {
        let (store, layer) = (store.clone(), layer.clone());
        let handler = async move || {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            if steals {
                store.steal().await;
            }
        };
        let lease = Lease::Renewed(Duration::from_secs(3));
        let layer = layer
            .wait(Duration::from_secs(2))
            .max_waiters(1)
            .lease(lease);
        Router::new()
            .route("/orders/{id}", any(handler))
            .layer(layer)
    };

    let slow = app(5, false);
    let after = async |millis| {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        put(&slow, SECRET).await.status().as_u16()
    };
    let hasty = async |millis| {
        let request = after(millis);
        let given_up = tokio::time::timeout(Duration::from_millis(millis + 500), request).await;
        given_up.is_err()
    };
    let ends = tokio::join!(after(0), after(1000), after(2000), hasty(3200), after(4000));
    // Served, contended, overloaded, cancelled, served after a wait.
    assert_eq!(ends, (200, 423, 503, true, 200));
    // Cancelled while it holds.
    assert!(hasty(0).await);
    settle().await;

    // The loss is found at the release, and at a renewal.
    assert_eq!(put(&app(0, true), SECRET).await.status(), 500);
    let robbed = locks.lock("robbed").await.unwrap();
    store.steal().await;
    robbed.lost().await;
    drop(robbed);

    let silent = locks
        .lock("silent")
        .lease(Lease::Renewed(Duration::from_secs(3)));
    let silent = silent.mode(LockMode::Read).await.unwrap();
    store.unplug(true);
    assert_eq!(put(&slow, SECRET).await.status(), 503);
    silent.lost().await;
    drop(silent);
    store.unplug(false);
    let mixed = [("a", LockMode::Read), ("b", LockMode::Write)];
    locks
        .lock_all(mixed)
        .label("nightly")
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;

    // Passed to the next request of the process.
    let first = locks.lock("passed").await.unwrap();
    let next = tokio::spawn(locks.lock("passed").acquire());
    settle().await;
    first.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    locks.audit().await.unwrap();

    let once = IdempotencyLayer::new(locks.clone()).shared();
    let app = Router::new()
        .route("/orders/{id}", any(async || ()))
        .layer(once);
    let mut request = super::request("POST", SECRET);
    let key = "secret".parse().unwrap();
    request.headers_mut().insert("idempotency-key", key);
    assert_eq!(super::send(&app, request).await.status(), 200);
    (store, locks)
}
