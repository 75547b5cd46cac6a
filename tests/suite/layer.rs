//! `DistributedLockLayer`, on the memory store and mostly on paused time.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use tower_distributed_lock::{DistributedLockLayer, LockClient, LockHandle, LockMode};

mod answers;
mod body;
mod cancel;
mod choices;
mod confirmed;
mod contract;
pub(crate) mod costs;
mod extracted;
mod grpc;
mod hyper;
mod keys;
mod modes;
mod nested;
mod overload;
mod permits;
mod places;
mod policies;
mod resources;
mod retry;
mod sockets;
pub(crate) mod store;
pub(crate) mod telemetry;
pub(crate) mod uploads;

use store::TestStore;

/// A store, a client of it, and a layer that uses the client.
fn locking() -> (TestStore, LockClient, DistributedLockLayer) {
    let store = TestStore::default();
    let locks = LockClient::new(store.clone());
    let layer = DistributedLockLayer::new(locks.clone());
    (store, locks, layer)
}

/// Every mode of a lock.
const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

/// Serves `/orders/{id}` at once, with its mode and key as the answer: `<mode> <key>`.
fn orders() -> Router {
    Router::new().route("/orders/{id}", any(describe))
}

async fn describe(lock: Option<LockHandle>) -> String {
    match lock {
        Some(lock) => format!("{} {}", lock.mode().as_str(), lock.key()),
        None => "unlocked".into(),
    }
}

/// Serves `/orders/{id}` for a second.
fn slow_orders() -> Router {
    Router::new().route("/orders/{id}", any(slow))
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "done"
}

fn request(method: &str, path: &str) -> Request<Body> {
    Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri(path)
        .body(Body::empty())
        .unwrap()
}

async fn send(app: &Router, request: Request<Body>) -> Response {
    app.clone().oneshot(request).await.unwrap()
}

async fn put(app: &Router, path: &str) -> Response {
    send(app, request("PUT", path)).await
}

async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn problem(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(response.headers()["cache-control"], "no-store");
    let mut problem: Value = serde_json::from_str(&text(response).await).unwrap();
    problem["type"] = kind_of(&problem).into();
    (status, problem)
}

/// The last part of a problem's type, which is an absolute URI.
pub(crate) fn kind_of(problem: &Value) -> &str {
    let uri = problem["type"].as_str().unwrap();
    let kind =
        uri.strip_prefix("https://docs.rs/tower-distributed-lock/latest/tower_distributed_lock/#");
    kind.unwrap_or_else(|| panic!("{uri}"))
}

/// Lets the background work finish, on paused time.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
