//! At most three calls at a time per tenant to an upstream that allows no more, over all processes.
//!
//! ```text
//! $ cargo run --example permits
//! apple: 200, 200, 200, 429 no-permit
//! pear: 200, 200
//! apple: 200, 200, 200, 200, 200, 429 no-permit
//! ```

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::{Router, routing::post};
use futures_util::future::join_all;
use tower::ServiceExt;
use tower_distributed_lock::{
    DistributedLockLayer, LockClient, MemoryStore, Rejection, Resource, key,
};

/// The limit stands in one place, for every layer, job and process.
const CALLS: Resource = Resource::new("permit:upstream").permits(3);

async fn forward() {
    tokio::time::sleep(Duration::from_millis(200)).await; // the call
}

/// Shows the responses to so many requests at the same time. A 429 has a `Retry-After`.
async fn ask(app: &Router, tenant: &str, count: usize) -> anyhow::Result<()> {
    let mut calls = Vec::new();
    for _ in 0..count {
        let request = Request::post(format!("/{tenant}/reports"));
        calls.push(app.clone().oneshot(request.body(Body::empty())?));
    }
    let mut shown = Vec::new();
    for answer in join_all(calls).await {
        let answer = answer?;
        let why = answer.extensions().get::<Rejection>();
        let why = why.map_or(String::new(), |rejection| {
            format!(" {}", rejection.kind().as_str())
        });
        shown.push(format!("{}{why}", answer.status().as_str()));
    }
    shown.sort();
    println!("{tenant}: {}", shown.join(", "));
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = LockClient::new(MemoryStore::new()); // a `RedisStore` counts over the whole fleet
    let layer = DistributedLockLayer::new(locks.clone()).key(key::param(CALLS, "tenant"));
    let forward = post(forward).route_layer(layer.wait(Duration::ZERO));
    let app = Router::new().route("/{tenant}/reports", forward);
    ask(&app, "apple", 4).await?;
    ask(&app, "pear", 2).await?;
    // The upstream has grown: no program need be changed or restarted.
    locks.admin()?.set_permits(CALLS.id("apple"), 5).await?;
    ask(&app, "apple", 6).await
}
