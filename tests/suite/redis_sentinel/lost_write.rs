//! A failover that loses a grant: two clients hold the lock, and only one is confirmed (S5).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::put;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tower::ServiceExt;
use tower_distributed_lock::{DistributedLockLayer, Lease, LockClient, LockError};

use super::{LIMIT, client, until_connections, until_moved};
use crate::support::{RedisSentinels, eventually};

/// A lease that is not renewed during the test.
const FIXED: Lease = Lease::Fixed(Duration::from_secs(300));

/// Sentinels that do not change the replicas' links, and two clients.
async fn world() -> (RedisSentinels, LockClient, LockClient) {
    let patient = [("failover-timeout", "180000")];
    let sentinels = RedisSentinels::start_with(&patient).await;
    let clients = (client(&sentinels).await, client(&sentinels).await);
    until_connections(sentinels.replicated.master(), 4).await;
    (sentinels, clients.0, clients.1)
}

/// Promotes a replica that does not have `lost`, and waits until both clients use it.
async fn promote(sentinels: &RedisSentinels, lost: &str) {
    let servers = &sentinels.replicated.servers;
    for replica in &servers[1..] {
        assert!(
            !replica.dump().await.contains_key(lost),
            "it was replicated"
        );
    }
    let master = sentinels.fail_over().await;
    until_moved(&sentinels.replicated, master, 4).await;
    assert!(!servers[master].dump().await.contains_key(lost));
}

#[tokio::test]
async fn the_first_holder_learns_of_its_loss_and_its_release_is_not_confirmed() {
    let (sentinels, a, b) = world().await;
    sentinels.replicated.hold_links();
    let quick = Lease::Renewed(Duration::from_secs(60));
    let renewed = a.lock("k").lease(quick).await.unwrap();
    let fixed = a.lock("fixed").lease(FIXED).await.unwrap();
    promote(&sentinels, "k").await;

    // S1 is broken: the new master does not have the holds.
    let second = b.lock("k").lease(FIXED).wait(LIMIT).await.unwrap();
    let third = b.lock("fixed").lease(FIXED).wait(LIMIT).await.unwrap();
    // S5 holds: a renewal or the release finds the loss.
    tokio::time::timeout(LIMIT, renewed.lost())
        .await
        .expect("an answer");
    for first in [renewed, fixed] {
        let released = first.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    }
    second.release().await.unwrap();
    third.release().await.unwrap();
}

#[tokio::test]
async fn a_request_whose_lock_a_failover_lost_is_500_and_never_the_handlers_answer() {
    let (sentinels, a, b) = world().await;
    let go = Arc::new(Semaphore::new(0));
    let handler = {
        let go = go.clone();
        move || async move {
            let _ = go.acquire().await;
            "done"
        }
    };
    let layer = DistributedLockLayer::new(a).lease(FIXED);
    let app: Router = Router::new()
        .route("/orders/{id}", put(handler))
        .layer(layer);
    let ask = || {
        let request = Request::put("/orders/1").body(Body::empty()).unwrap();
        app.clone().oneshot(request)
    };
    sentinels.replicated.hold_links();
    let first = tokio::spawn(ask());
    let key = eventually("the lock is held", LIMIT, async || {
        sentinels
            .replicated
            .master()
            .dump()
            .await
            .into_keys()
            .next()
    })
    .await;
    promote(&sentinels, &key).await;
    let second = b
        .lock(key.as_str())
        .mode(tower_distributed_lock::LockMode::Write);
    let second = second.lease(FIXED).wait(LIMIT).await.unwrap();
    go.add_permits(1);
    let response = first.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(crate::layer::kind_of(&problem), "lock-lost");
    second.release().await.unwrap();
}
