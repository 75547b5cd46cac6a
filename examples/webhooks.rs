//! Webhooks that are delivered many times and processed once. `examples/server` also checks
//! their signatures, which this example leaves out.
//!
//! ```text
//! $ cargo run --example webhooks &
//! $ send() { curl -s -w '%{http_code} %header{idempotent-replayed}\n' localhost:3000/webhooks "$@"; }
//! $ send -H 'webhook-id: msg_1' -d '{"paid": 7}'
//! webhook 1 was processed: {"paid": 7}
//! 200
//! $ send -H 'webhook-id: msg_1' -d '{"paid": 7}'      # a repeat
//! webhook 1 was processed: {"paid": 7}
//! 200 true
//! $ send -H 'webhook-id: msg_1' -d '{"paid": 8}'      # not the same webhook
//! {"type":"…#key-reused","title":"The idempotency key was used for another request","status":422}422
//! $ send -d '{"paid": 7}'                             # which one is it?
//! {"type":"…#key-missing","title":"The request has no key","status":400,"detail":"the header `webhook-id` is missing"}400
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::net::TcpListener;
use tower_distributed_lock::idempotency::key;
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient, MemoryStore};

async fn process(body: String) -> String {
    static PROCESSED: AtomicUsize = AtomicUsize::new(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let n = PROCESSED.fetch_add(1, Ordering::Relaxed) + 1;
    format!("webhook {n} was processed: {body}\n")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // `RedisStore::connect("redis://127.0.0.1").await?` for several servers, and for records that outlive them.
    let locks = LockClient::new(MemoryStore::new());
    // The id verifies nothing. In a service, a check of the signature is outside of this layer, as in `examples/server`: without it, a
    // stranger can send an id first, and the sender's own webhook is refused.
    //
    // Or key::github(), key::shopify(), key::stripe(), key::cloud_events(), or a `Provider` of your own.
    let once = IdempotencyLayer::webhook(locks, key::standard_webhooks())
        // If this process dies in the middle, a repeat runs 10 seconds later.
        .lease(Lease::Renewed(Duration::from_secs(10)));
    let app = Router::new().route("/webhooks", post(process).route_layer(once));
    Ok(axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app).await?)
}
