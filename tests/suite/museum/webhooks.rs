//! Bugs of recorded answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use futures_util::future::join_all;
use http::Request;
use tower::ServiceExt;
use tower_distributed_lock::IdempotencyLayer;

use super::{client, exhibit, expect};
use crate::support::{Flaw, Flawed};

/// Friday, pull request 403, and many like it: the answer is recorded when nothing protects the key any more, so that a
/// duplicate in between finds neither a record nor a lock.
#[test]
fn concurrent_duplicates_of_a_webhook_run_once() {
    exhibit(Flaw::RecordsAfterRelease, async |store| {
        let runs = Arc::new(AtomicUsize::new(0));
        // Two servers: one delivery each.
        let servers = [server(&store, &runs), server(&store, &runs)];
        let deliveries = servers.map(|server| async move {
            let delivery = Request::post("/webhooks")
                .header("idempotency-key", "event:7")
                .body(Body::from("{}"))
                .unwrap();
            server.oneshot(delivery).await.unwrap()
        });
        for answer in join_all(deliveries).await {
            assert_eq!(answer.status(), 200);
        }
        let ran = runs.load(Ordering::SeqCst);
        expect(ran == 1, "one event was worked on twice")
    });
}

fn server(store: &Flawed, runs: &Arc<AtomicUsize>) -> Router {
    let runs = runs.clone();
    let work = move || async move {
        runs.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let layer = IdempotencyLayer::new(client(store)).shared();
    Router::new().route("/webhooks", post(work)).layer(layer)
}
