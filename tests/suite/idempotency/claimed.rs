//! The name of the record, as the handler gets it, and what else the handler gets.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::handler::Handler;
use axum::routing::post;
use axum::{Extension, Router};
use http::{Request, StatusCode};
use tower_distributed_lock::idempotency::{IdempotencyKey, Recording};
use tower_distributed_lock::{
    DistributedLockLayer, IdempotencyLayer, LockAdmin, LockClient, LockError, LockHandle,
    MemoryStore, Owner, Rejection, RejectionKind, key,
};
use tracing::Level;

use super::{Runs, answering, is_replay, pay, problem, remembering, request, send, text};
use crate::support::Log;

#[derive(Clone)]
pub(super) struct User(pub(super) &'static str);

impl AsRef<str> for User {
    fn as_ref(&self) -> &str {
        self.0
    }
}

fn answering_with_lock<H, T>(layer: IdempotencyLayer, handler: H) -> Router
where
    H: Handler<T, ()>,
    T: 'static,
{
    Router::new().route("/payments", post(handler)).layer(layer)
}

fn naming(layer: IdempotencyLayer) -> Router {
    let name = async |key: IdempotencyKey| key.to_string();
    Router::new().route("/payments", post(name)).layer(layer)
}

/// The handler writes it into its own transaction: it must tell two requests apart exactly if the layer does.
#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_name_under_which_the_record_is_kept() {
    let store = MemoryStore::new();
    let locks = LockClient::new(store.clone());
    let app = naming(IdempotencyLayer::new(locks).tenant_from::<User>());
    let sent = async |user: &'static str, key: &str| {
        let mut request = request(key, "{}");
        request.extensions_mut().insert(User(user));
        text(send(&app, request).await).await
    };
    let name = sent("alice", "k").await;
    assert_eq!(
        sent("alice", "\"k\"").await,
        name,
        "quotes are no part of it"
    );
    assert_ne!(sent("bob", "k").await, name);
    assert_ne!(sent("alice", "other").await, name);
    let admin = LockAdmin::new(store);
    let record = admin.record(name.as_str()).await.unwrap();
    assert!(record.is_some(), "nothing is recorded under {name}");
}

/// The handler keeps it beside the name: after the record is lost, it still tells a repeat from another request.
#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_fingerprint_that_tells_a_repeat_from_another_request() {
    let fingerprint = async |body: &str| {
        let (_store, _locks, layer) = remembering();
        let told = async |key: IdempotencyKey| format!("{:?}", key.fingerprint());
        let app = Router::new().route("/payments", post(told)).layer(layer);
        text(send(&app, request("k", body)).await).await
    };
    let first = fingerprint("1").await;
    assert_eq!(fingerprint("1").await, first);
    assert_ne!(fingerprint("2").await, first);
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_record_begins_with_the_name_space() {
    let locks = LockClient::builder(MemoryStore::new()).namespace("prod");
    let app = naming(IdempotencyLayer::new(locks.build()).shared());
    let name = text(pay(&app).await).await;
    assert!(name.starts_with("prod:"), "{name}");
}

#[tokio::test(start_paused = true)]
async fn a_key_in_the_body_has_a_name_too() {
    let (_store, _locks, layer) = remembering();
    let app = naming(layer.key(key::json_field("event", "/id")));
    let named = async |body: &'static str| {
        let request = Request::post("/payments").body(Body::from(body)).unwrap();
        text(send(&app, request).await).await
    };
    let name = named(r#"{"id":"evt_1"}"#).await;
    assert!(name.ends_with("event:evt_1"), "{name}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_a_key_where_none_is_claimed_is_a_mistake_of_the_program() {
    let (log, _guard) = Log::at(Level::ERROR);
    let (_store, _locks, layer) = remembering();
    let app = naming(layer.clone());
    let keyless = || Request::post("/payments").body(Body::empty()).unwrap();
    let (status, problem) = problem(send(&app, keyless()).await).await;
    assert_eq!(
        (status, &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
    assert!(
        log.text().contains("the handler of /payments"),
        "{}",
        log.text()
    );
    let optional = async |key: Option<IdempotencyKey>| key.is_some().to_string();
    let app = Router::new()
        .route("/payments", post(optional))
        .layer(layer);
    assert_eq!(text(send(&app, keyless()).await).await, "false");
    assert_eq!(text(pay(&app).await).await, "true");
}

/// The inner layer claims another name for the same request, or finds that its name is claimed.
#[tokio::test(start_paused = true)]
async fn of_two_layers_the_handler_sees_the_inner_one() {
    let (_store, _locks, layer) = remembering();
    let inner = layer.clone().key(key::header("x-inner"));
    let app = naming(inner).layer(layer.clone()).layer(layer);
    let mut both = request("k", "{}");
    both.headers_mut().insert("x-inner", "1".parse().unwrap());
    let name = text(send(&app, both).await).await;
    assert!(name.ends_with("x-inner:1"), "{name}");
    let name = text(send(&app, request("other", "{}")).await).await;
    assert!(name.ends_with("idempotency-key:other"), "{name}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_decides_by_its_response_what_is_recorded() {
    for (recording, status, recorded) in [
        (None, StatusCode::FORBIDDEN, false),
        (Some(Recording::Always), StatusCode::FORBIDDEN, true),
        (Some(Recording::Always), StatusCode::BAD_GATEWAY, true),
        (
            Some(Recording::Always),
            StatusCode::SWITCHING_PROTOCOLS,
            false,
        ),
        (None, StatusCode::OK, true),
        (Some(Recording::Never), StatusCode::OK, false),
    ] {
        let (_store, _locks, layer) = remembering();
        let app =
            answering(move || async move { (status, recording.map(Extension), "") }).layer(layer);
        assert_eq!(pay(&app).await.status(), status);
        let repeat = pay(&app).await;
        assert_eq!(repeat.status(), status);
        assert_eq!(is_replay(&repeat), recorded, "{recording:?} {status}");
    }
}

/// As under a lock layer: what it holds, and who it is to the lock client.
#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_lock_and_the_owner_of_its_request() {
    let (_store, locks, layer) = remembering();
    let handler = async move |handle: LockHandle, owner: Owner, key: IdempotencyKey| {
        assert_eq!(handle.keys().collect::<Vec<_>>(), [key.lock_key()]);
        // With the owner it joins its own hold, instead of waiting for itself.
        let joined = locks.lock(key.lock_key()).owner(&owner).await.unwrap();
        joined.release().await.unwrap();
        handle.is_lost().to_string()
    };
    let app = Router::new()
        .route("/payments", post(handler))
        .layer(layer.required());
    assert_eq!(text(pay(&app).await).await, "false");
}

/// The lock that the handler asks for is not the one of its idempotency key.
#[tokio::test(start_paused = true)]
async fn a_lock_layer_further_in_shows_its_own_lock() {
    let (_store, locks, layer) = remembering();
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = async move |handle: LockHandle| {
        counted.add();
        handle.key().to_string()
    };
    let app = Router::new()
        .route("/payments", post(handler))
        .layer(DistributedLockLayer::new(locks).key(key::path()))
        .layer(layer);
    assert_eq!(text(pay(&app).await).await, "path:/payments");
    assert!(is_replay(&pay(&app).await));
    assert_eq!(runs.count(), 1);
}

/// It would still have the hold at the end of the request, which is then neither recorded nor confirmed.
#[tokio::test(start_paused = true)]
async fn the_lock_of_a_request_cannot_be_shared_beyond_its_response() {
    let (_store, locks, layer) = remembering();
    let app = answering_with_lock(layer, async move |lock: LockHandle| {
        let refused = lock
            .share(&locks)
            .await
            .map(drop)
            .expect_err("it is not shared");
        assert!(matches!(refused, LockError::Invalid(_)), "{refused:?}");
        "refused"
    });
    assert_eq!(text(pay(&app).await).await, "refused");
    assert!(is_replay(&pay(&app).await));
}

/// By its owner it can, and the log says what is wrong.
#[tokio::test(start_paused = true)]
async fn a_lock_that_the_handler_has_taken_once_more_is_no_loss() {
    let (_store, locks, layer) = remembering();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeping = async move |lock: LockHandle, owner: Owner| {
        let guard = locks.lock(lock.key()).owner(&owner).await.unwrap();
        kept.lock().unwrap().push(guard);
    };
    let app = answering_with_lock(layer, keeping);
    let response = pay(&app).await;
    let rejection = response.extensions().get::<Rejection>().unwrap();
    assert_eq!(
        rejection.kind(),
        RejectionKind::Lost,
        "its outcome is unknown"
    );
    assert!(rejection.to_string().contains("is shared"), "{rejection}");
    let (status, problem) = problem(response).await;
    assert_eq!((status, &problem["outcome"]), (500, &"unknown".into()));
}
