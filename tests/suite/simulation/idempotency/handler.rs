//! The handler, whose work must be done once.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use fastrand::Rng;
use http::HeaderValue;
use tokio::time::sleep;
use tower_distributed_lock::IdempotencyLayer;
use tower_distributed_lock::idempotency::Recording;

use super::super::plan::millis;
use super::runs::{Answer, Runs};
use crate::support::Flaw;

/// The header with the number of a request.
pub(super) const NUMBER: &str = "x-number";

/// Takes a while, and gives a different answer each time.
#[derive(Clone)]
pub(super) struct Handler {
    runs: Arc<Runs>,
    flaw: Flaw,
    random: Arc<Mutex<Rng>>,
}

impl Handler {
    pub(super) fn new(runs: Arc<Runs>, flaw: Flaw, random: &mut Rng) -> Self {
        Self {
            runs,
            flaw,
            random: Arc::new(Mutex::new(random.fork())),
        }
    }

    /// Serves `POST /payments` behind the layer.
    pub(super) fn behind(self, layer: IdempotencyLayer) -> Router {
        let flaw = self.flaw;
        let serve = move |request: Request| async move { self.serve(request).await };
        let app = Router::new().route("/payments", post(serve)).layer(layer);
        match flaw {
            Flaw::IgnoresBodies => app.layer(tower::util::MapRequestLayer::new(without_body)),
            _ => app,
        }
    }

    async fn serve(&self, request: Request) -> Response {
        let number = request.headers()[NUMBER].to_str().unwrap().parse();
        let run = self.runs.begin(number.unwrap());
        let (time, status, length) = {
            let random = &mut *self.random.lock().unwrap();
            (draw_time(random), draw_status(random), random.usize(..100))
        };
        sleep(millis(time)).await;
        let body = Bytes::from(format!("run {run}: {}", "x".repeat(length)));
        let (parts, ()) = Response::builder()
            .status(status)
            .header("x-run", run)
            .header("set-cookie", "a=1")
            .header("set-cookie", format!("run={run}"))
            .header("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap())
            .body(())
            .unwrap()
            .into_parts();
        let mut answer = Answer::new(&parts, body.clone());
        // The framework also sets this header.
        answer.headers.insert("content-length", body.len().into());
        let is_final = status == 201;
        self.runs.finish(run, answer, is_final);
        let mut response = Response::from_parts(parts, Body::from(body));
        if is_final {
            response.extensions_mut().insert(Recording::WithCookies);
        }
        response
    }
}

fn draw_time(random: &mut Rng) -> u64 {
    match random.u8(..10) {
        0 => random.u64(..1_500),
        1..4 => 0,
        _ => random.u64(..200),
    }
}

/// Most of them are final.
fn draw_status(random: &mut Rng) -> u16 {
    match random.u8(..10) {
        0 => 404,
        1 => 409,
        2 => 500,
        3 => 503,
        _ => 201,
    }
}

fn without_body(request: Request) -> Request {
    request.map(|_| Body::empty())
}
