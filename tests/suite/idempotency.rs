//! `IdempotencyLayer`, on the memory store and mostly on paused time.

mod answers;
mod claimed;
mod contract;
pub(crate) mod costs;
mod faults;
mod keys;
mod lengths;
mod local;
mod measured;
mod presets;
mod repeats;
mod replays;
mod scope;
mod uploads;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use tower_distributed_lock::{IdempotencyLayer, LockClient};

use crate::layer::store::TestStore;

/// A store, a client of it, and a layer that uses the client.
fn remembering() -> (TestStore, LockClient, IdempotencyLayer) {
    let store = TestStore::default();
    let locks = LockClient::new(store.clone());
    let layer = IdempotencyLayer::new(locks.clone()).shared();
    (store, locks, layer)
}

/// How often a handler ran.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves `POST /payments`, taking a second, with `201` and `run <n>`.
fn payments(runs: &Runs) -> Router {
    let runs = runs.clone();
    answering(move || {
        let run = runs.add();
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (StatusCode::CREATED, format!("run {run}"))
        }
    })
}

/// Serves `POST /payments` with the answer of `handler`.
fn answering<F, T>(handler: impl Fn() -> F + Clone + Send + Sync + 'static) -> Router
where
    F: Future<Output = T> + Send + 'static,
    T: IntoResponse + 'static,
{
    Router::new().route("/payments", post(handler))
}

fn request(key: &str, body: &str) -> Request<Body> {
    Request::post("/payments")
        .header("idempotency-key", key)
        .body(Body::from(body.to_owned()))
        .unwrap()
}

async fn send(app: &Router, request: Request<Body>) -> Response {
    app.clone().oneshot(request).await.unwrap()
}

/// Pays once under the key `k`.
async fn pay(app: &Router) -> Response {
    send(app, request("k", "{}")).await
}

fn is_replay(response: &Response) -> bool {
    let mut lines = response.headers().get_all("idempotent-replayed").iter();
    match (lines.next(), lines.next()) {
        (None, _) => false,
        (Some(value), None) => value == "true",
        (Some(_), Some(_)) => panic!("one line is enough"),
    }
}

async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn problem(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(response.headers()["cache-control"], "no-store");
    let mut problem: Value = serde_json::from_str(&text(response).await).unwrap();
    problem["type"] = crate::layer::kind_of(&problem).into();
    (status, problem)
}

/// Lets the background work finish, on paused time.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
