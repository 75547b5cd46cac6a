//! Webhooks that are delivered many times and processed once. (`examples/server` checks their signatures, too.)
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
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient, MemoryStore, OnCancel};

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
    let once = IdempotencyLayer::new(locks)
        .key(key::standard_webhooks()) // or key::github(), key::shopify(), key::stripe(), key::cloud_events(), …
        .required()
        // The sender signs its webhooks and has no session, so all requests share one scope.
        .shared()
        // Senders give up after 5 to 10 seconds: a repeat that waits longer is answered 409.
        .wait(Duration::from_secs(4))
        // When this process dies in the middle, a repeat runs 10 seconds later.
        .lease(Lease::Renewed(Duration::from_secs(10)))
        // Senders repeat for days.
        .retention(Duration::from_secs(3 * 24 * 60 * 60))
        // The work continues when the sender disconnects; the repeat gets the recorded answer.
        .on_cancel(OnCancel::RunToCompletion);
    let app = Router::new().route("/webhooks", post(process).route_layer(once));
    Ok(axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app).await?)
}
