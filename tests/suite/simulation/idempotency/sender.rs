//! A sender that sends the same requests again and again.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use fastrand::Rng;
use http::Request;
use tokio::time::sleep;
use tower::ServiceExt;
use tower_distributed_lock::RejectionKind;

use super::super::impatient::Patience;
use super::super::log::Log;
use super::super::plan::{millis, patience};
use super::handler::NUMBER;
use super::runs::{Answer, Runs, Sent};

/// The keys that all senders use.
pub(super) const KEYS: [&str; 3] = ["k", "l", "m"];

const ROUNDS: usize = 4;

#[derive(Clone)]
pub(super) struct Sender {
    app: Router,
    runs: Arc<Runs>,
    log: Arc<Log>,
}

impl Sender {
    pub(super) fn new(app: Router, runs: Arc<Runs>, log: Arc<Log>) -> Self {
        Self { app, runs, log }
    }

    pub(super) async fn run(self, mut random: Rng) {
        for _ in 0..ROUNDS {
            let key = KEYS[random.usize(..KEYS.len())];
            // Sometimes a key is used with another body.
            let body = ["{}", "{}", "{}", "{\"other\": 1}"][random.usize(..4)];
            self.send(key, body, patience(&mut random, 300)).await;
            sleep(millis(random.u64(..200))).await;
        }
    }

    /// In good weather, a repeat of a recorded request gets the record; any other request is
    /// served.
    pub(super) async fn repeat(&self, key: &'static str) {
        let recorded = self.runs.recorded(key);
        let body = recorded.unwrap_or("{}");
        let Some(answer) = self.send(key, body, Patience::Endless).await else {
            return;
        };
        let replayed = answer.headers.contains_key("idempotent-replayed");
        if recorded.is_none() && answer.rejection == Some(RejectionKind::Lost) {
            return; // It took longer than the longest hold.
        }
        if answer.rejection.is_some() || replayed != recorded.is_some() {
            let text = format!("{key} is repeated, and answered {answer:?}");
            self.log.violated("S10", text);
        }
    }

    async fn send(
        &self,
        key: &'static str,
        body: &'static str,
        patience: Patience,
    ) -> Option<Answer> {
        let sent = self.runs.send(key, body);
        let answer = patience.bear(self.ask(sent)).await;
        match &answer {
            Some(answer) => self.runs.answered(sent, answer),
            None => {
                self.log.note(|| format!("{sent:?} is given up"));
                self.log.count("cancelled");
            }
        }
        answer
    }

    async fn ask(&self, sent: Sent) -> Answer {
        let request = Request::post("/payments")
            .header("idempotency-key", sent.key)
            .header(NUMBER, sent.number)
            .body(Body::from(sent.body))
            .unwrap();
        let response = self.app.clone().oneshot(request).await;
        let (parts, body) = response.unwrap().into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Answer::new(&parts, body)
    }
}
