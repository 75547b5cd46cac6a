//! The fencing tokens of requests.

use axum::Router;
use axum::routing::any;
use http::request::Parts;
use tower_distributed_lock::{LockHandle, LockKey, LockMode};

use super::super::{locking, put, send, text};

#[tokio::test(start_paused = true)]
async fn exclusive_requests_have_a_rising_token_and_reads_have_none() {
    async fn tell(lock: LockHandle) -> String {
        lock.fencing_token()
            .map_or("none".into(), |token| token.to_string())
    }
    let (_store, _locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(tell))
        .layer(layer.fenced());
    let mut last = 0_u64;
    for _ in 0..3 {
        let token = text(put(&app, "/orders/1").await).await.parse().unwrap();
        assert!(token > last);
        last = token;
    }
    let read = send(&app, super::super::request("GET", "/orders/1")).await;
    assert_eq!(text(read).await, "none");
}

#[tokio::test(start_paused = true)]
async fn what_a_request_writes_has_a_token_also_beside_what_it_reads() {
    async fn tell(lock: LockHandle) -> String {
        let tokens = lock.fencing_tokens();
        let tokens = tokens.map(|(key, token)| format!("{key} {}", token.is_some()));
        tokens.collect::<Vec<_>>().join(", ")
    }
    use LockMode::{Fair, Read, Reentrant, Write};
    for (ledger, rates, expected) in [
        (Write, Read, "ledger true, rates false"),
        (Read, Write, "ledger false, rates true"),
        (Read, Read, "ledger false, rates false"),
        (Fair, Reentrant, "ledger true, rates true"),
    ] {
        let (_store, _locks, layer) = locking();
        let layer = layer.fenced().key(move |_: &Parts| {
            [("ledger", ledger), ("rates", rates)].map(|(name, mode)| (LockKey::new(name), mode))
        });
        let app = Router::new().route("/orders/{id}", any(tell));
        // The inner layer joins what the outer one holds.
        let app = app.layer(layer.clone()).layer(layer);
        assert_eq!(text(put(&app, "/orders/1").await).await, expected);
    }
}
