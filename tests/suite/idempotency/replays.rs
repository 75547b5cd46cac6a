//! A replay reads the record, and takes no lock.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use futures_util::stream;
use http::Request;

use super::{Runs, is_replay, pay, payments, problem, remembering, send};

#[tokio::test(start_paused = true)]
async fn a_replay_asks_for_no_lock() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    pay(&app).await;
    let asked = store.asked();
    for _ in 0..3 {
        assert!(is_replay(&pay(&app).await));
    }
    assert_eq!(store.asked(), asked);
    assert_eq!(runs.count(), 1);
}

/// A request that is refused or passed by its head is not read: its body may never end.
#[tokio::test(start_paused = true)]
async fn a_request_that_its_head_decides_is_not_read() {
    let (_store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer.required());
    let never_ends = || Body::from_stream(stream::pending::<Result<&str, std::io::Error>>());
    let cases = [
        ("OPTIONS", Some("k"), 405, None),
        ("POST", None, 400, Some("key-missing")),
        ("POST", Some("a, b"), 400, Some("key-invalid")),
    ];
    for (method, key, status, kind) in cases {
        let mut request = Request::builder().method(method).uri("/payments");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(never_ends()).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(1), send(&app, request)).await;
        let answer = answer.expect("the body is not waited for");
        assert_eq!(answer.status(), status, "{method} {key:?}");
        if let Some(kind) = kind {
            assert_eq!(problem(answer).await.1["type"], kind);
        }
    }
}

/// A recorded answer to CONNECT would be a success without a tunnel.
#[tokio::test(start_paused = true)]
async fn a_tunnel_is_opened_again() {
    let (store, _locks, layer) = remembering();
    let app = Router::new()
        .route("/tunnel", any(async || ()))
        .layer(layer);
    for _ in 0..2 {
        let request = Request::builder().method("CONNECT").uri("/tunnel");
        let request = request.header("idempotency-key", "k");
        let answer = send(&app, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), 200);
        assert!(!is_replay(&answer));
    }
    assert_eq!(store.asked(), 0);
}
