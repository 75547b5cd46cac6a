//! The cost of a refusal, in allocations: a process that refuses most of its requests must have time for the
//! others.

use std::time::Duration;

use axum::Router;
use axum::routing::put as put_only;
use stats_alloc::INSTRUMENTED_SYSTEM;
use tower_distributed_lock::{
    DistributedLockLayer, LockAdmin, LockClient, MemoryStore, Resource, key,
};

use super::put;
use crate::support::{Console, Peer};

const ORDERS: Resource = Resource::new("lock:order");
const REQUESTS: usize = 500;

/// The role: reports the allocations of a request that is served, and of one that is refused because too many wait.
///
/// It is a process of its own, because the allocations of a process are counted together.
pub(crate) async fn refuser(mut console: Console) {
    let store = MemoryStore::new();
    let layer = DistributedLockLayer::new(LockClient::new(store.clone()))
        .key(key::param(ORDERS, "id"))
        .max_waiters(0);
    let app = Router::new()
        .route("/orders/{id}", put_only(async || ()))
        .layer(layer)
        // As `axum::serve` does. Otherwise every request puts the layers together anew.
        .with_state(());
    let without: Router = Router::new()
        .route("/orders/{id}", put_only(async || ()))
        .with_state(());
    console.say(allocations(&without, "/orders/1", 200).await);
    console.say(allocations(&app, "/orders/1", 200).await);

    let admin = LockAdmin::new(store.clone());
    let _held = LockClient::new(store).lock(ORDERS.id(2)).await.unwrap();
    let asking = {
        let app = app.clone();
        tokio::spawn(async move { put(&app, "/orders/2").await })
    };
    // One request waits in the store; every other would wait behind it, and is refused.
    while admin
        .inspect(ORDERS.id(2))
        .await
        .unwrap()
        .waiters
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    console.say(allocations(&app, "/orders/2", 503).await);
    asking.abort();
    console.hear().await;
}

async fn allocations(app: &Router, path: &str, status: u16) -> usize {
    for _ in 0..100 {
        put(app, path).await;
    }
    let count = || {
        let stats = INSTRUMENTED_SYSTEM.stats();
        stats.allocations + stats.reallocations
    };
    let before = count();
    for _ in 0..REQUESTS {
        assert_eq!(put(app, path).await.status(), status);
    }
    (count() - before) / REQUESTS
}

#[tokio::test]
async fn a_refusal_costs_few_allocations() {
    let mut peer = Peer::start("refuser");
    let without: usize = peer.hear().await.parse().unwrap();
    let served: usize = peer.hear().await.parse().unwrap();
    let refused: usize = peer.hear().await.parse().unwrap();
    println!(
        "allocations: {without} without a layer, {served} served under a lock, {refused} refused"
    );
    assert!(
        refused <= without + 15,
        "{refused}, without a layer {without}"
    );
    assert!(refused < served, "{refused} {served}");
}
