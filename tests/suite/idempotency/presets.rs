//! The layers for the two frequent cases.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use tower_distributed_lock::idempotency::key;
use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};

use super::claimed::User;
use super::{Runs, answering, is_replay, pay, payments, problem, remembering, request, send, text};

fn delivery(id: &str) -> Request<Body> {
    let delivery = Request::post("/payments").header("x-github-delivery", id);
    delivery.body(Body::from("{}")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_webhook_needs_its_id_and_no_tenant_and_runs_to_its_end() {
    let (_store, locks, _) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(IdempotencyLayer::webhook(locks, key::github()));
    let (status, answer) = problem(send(&app, request("k", "{}")).await).await;
    assert_eq!((status, &answer["type"]), (400, &"key-missing".into()));
    let gone = tokio::time::timeout(Duration::from_millis(500), send(&app, delivery("1"))).await;
    assert!(gone.is_err());
    let repeat = send(&app, delivery("1")).await;
    assert!(is_replay(&repeat));
    assert_eq!(text(repeat).await, "run 1");
}

/// The repeat is answered before its sender gives up.
#[tokio::test(start_paused = true)]
async fn a_repeat_waits_no_longer_than_its_sender() {
    async fn waited(layer: IdempotencyLayer, request: impl Fn() -> Request<Body>) -> Duration {
        let endless = answering(async || std::future::pending::<()>().await).layer(layer);
        let began = tokio::time::Instant::now();
        tokio::select! {
            _ = send(&endless, request()) => unreachable!("it does not end"),
            repeat = async {
                super::settle().await;
                send(&endless, request()).await
            } => assert_eq!(repeat.status(), 409),
        }
        began.elapsed()
    }
    let locks = || LockClient::new(MemoryStore::new());
    let github = waited(IdempotencyLayer::webhook(locks(), key::github()), || {
        delivery("1")
    });
    assert_eq!(github.await.as_secs(), 8, "GitHub gives up after 10 s");
    let shopify = waited(IdempotencyLayer::webhook(locks(), key::shopify()), || {
        let delivery = Request::post("/payments").header("x-shopify-event-id", "1");
        delivery.body(Body::from("{}")).unwrap()
    });
    assert_eq!(shopify.await.as_secs(), 4, "Shopify gives up after 5 s");
}

/// GitHub sends a delivery again for three days.
#[tokio::test(start_paused = true)]
async fn a_record_is_kept_for_as_long_as_its_sender_repeats() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let (_store, locks, _) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(IdempotencyLayer::webhook(locks, key::github()));
    send(&app, delivery("1")).await;
    tokio::time::sleep(DAY * 2).await;
    assert!(is_replay(&send(&app, delivery("1")).await));
    tokio::time::sleep(DAY * 2).await;
    assert!(!is_replay(&send(&app, delivery("1")).await));
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_payment_needs_its_key_and_its_user() {
    let (_store, locks, _) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(IdempotencyLayer::payments(locks).tenant_from::<User>());
    let keyless = Request::post("/payments").body(Body::empty()).unwrap();
    assert_eq!(send(&app, keyless).await.status(), 400);
    assert_eq!(pay(&app).await.status(), 500, "it has no user");
    for repeated in [false, true] {
        for user in ["alice", "bob"] {
            let mut request = request("k", "{}");
            request.extensions_mut().insert(User(user));
            assert_eq!(is_replay(&send(&app, request).await), repeated, "{user}");
        }
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
#[should_panic(expected = "call `tenant` with what identifies the client")]
async fn a_layer_for_payments_that_knows_no_user_is_refused_when_it_is_built() {
    let locks = LockClient::new(MemoryStore::new());
    let _ = answering(|| async {}).layer(IdempotencyLayer::payments(locks));
}
