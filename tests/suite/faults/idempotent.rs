//! Idempotent requests whose Redis fails at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::Request;
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient};

use super::{SOON, client, command, outcome, take_and_release, works_again};
use crate::support::{Ending, Proxy, RedisServer, eventually};

/// A handler of payments, which counts its runs.
#[derive(Clone, Default)]
struct Payments {
    begun: Arc<AtomicUsize>,
    may_end: Arc<Notify>,
}

impl Payments {
    /// Each run waits until it may end.
    fn served(&self, locks: &LockClient) -> Router {
        let this = self.clone();
        let pay = async move || {
            let run = this.begun.fetch_add(1, Ordering::SeqCst) + 1;
            this.may_end.notified().await;
            format!("run {run}")
        };
        let layer = IdempotencyLayer::new(locks.clone())
            .shared()
            .lease(Lease::Renewed(Duration::from_secs(2)))
            .wait(SOON);
        Router::new().route("/payments", post(pay)).layer(layer)
    }

    async fn until_begun(&self, runs: usize) {
        eventually("the handler runs", SOON, async || {
            self.begun.load(Ordering::SeqCst) == runs
        })
        .await;
    }
}

async fn pay(app: Router, key: &'static str) -> Response {
    let request = Request::post("/payments").header("idempotency-key", key);
    let request = request.body(Body::from("{}")).expect("a request");
    app.oneshot(request).await.expect("an answer")
}

/// S9, S10. The response was recorded, and the acknowledgement was lost: the handler does not run again.
#[tokio::test]
async fn a_record_whose_acknowledgement_is_lost_is_replayed() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let locks = client(proxy.url()).await;
    let payments = Payments::default();
    let app = payments.served(&locks);
    // The server knows the scripts.
    payments.may_end.notify_one();
    assert_eq!(pay(app.clone(), "first").await.status(), 200);
    let paying = tokio::spawn(pay(app.clone(), "k"));
    payments.until_begun(2).await;
    proxy.replies.hold();
    payments.may_end.notify_one();
    eventually("it is recorded", SOON, async || {
        let dump = server.dump().await;
        let records = dump
            .keys()
            .filter(|key| key.starts_with("tower_lock_record:"));
        records.count() == 2
    })
    .await;
    proxy.replies.until_caught().await;
    assert!(proxy.cut(Ending::Reset).await > 0);
    proxy.replies.release();
    let first = outcome(paying).await;
    let repeated = outcome(tokio::spawn(pay(app, "k"))).await;
    assert_eq!(repeated.status(), 200);
    assert_eq!(repeated.headers()["idempotent-replayed"], "true");
    assert_eq!(payments.begun.load(Ordering::SeqCst), 2);
    // Only a recorded success is sent: the layer has found its record in time, or does not know that there is one.
    match first.status().as_u16() {
        200 => assert_eq!(first.headers()["idempotent-replayed"], "true"),
        status => assert_eq!(status, 500),
    }
}

/// S10. The connection is silenced while the handler runs, so that its record is not stored and its lock expires.
#[tokio::test]
async fn a_success_whose_record_is_not_stored_is_not_sent() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let (locks, other) = (client(proxy.url()).await, client(server.url()).await);
    let payments = Payments::default();
    let [app, elsewhere] = [&locks, &other].map(|locks| payments.served(locks));
    // The server knows the scripts.
    payments.may_end.notify_one();
    assert_eq!(pay(app.clone(), "first").await.status(), 200);
    let paying = tokio::spawn(pay(app, "k"));
    payments.until_begun(2).await;
    proxy.requests.hold();
    payments.may_end.notify_one();
    proxy.requests.until_caught().await;
    let first = outcome(paying).await;
    let repeating = tokio::spawn(pay(elsewhere.clone(), "k"));
    payments.may_end.notify_one();
    let repeated = outcome(repeating).await;
    assert_eq!(repeated.status(), 200);
    assert_eq!(payments.begun.load(Ordering::SeqCst), 3, "it is run again");
    assert_eq!(first.status(), 500, "{first:?}");
    let again = outcome(tokio::spawn(pay(elsewhere, "k"))).await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert!(proxy.cut(Ending::Reset).await > 0);
    proxy.requests.release();
    command(&server, &["FLUSHALL"]).await;
    works_again(&server, &[&locks, &other]).await;
}

/// S5, S10. The lock was lost with the data: the response of its handler is not sent.
#[tokio::test]
async fn a_claim_lost_in_a_crash_is_not_confirmed_and_its_repetition_is() {
    let mut server = RedisServer::start().await;
    let (locks, other) = (client(server.url()).await, client(server.url()).await);
    let payments = Payments::default();
    let [app, elsewhere] = [&locks, &other].map(|locks| payments.served(locks));
    let paying = tokio::spawn(pay(app, "k"));
    payments.until_begun(1).await;
    server.kill9();
    server.restart().await;
    take_and_release(&[&locks, &other]).await;
    let repeating = tokio::spawn(pay(elsewhere.clone(), "k"));
    payments.until_begun(2).await;
    payments.may_end.notify_one();
    let first = outcome(paying).await;
    assert_eq!(first.status(), 500, "{first:?}");
    payments.may_end.notify_one();
    assert_eq!(outcome(repeating).await.status(), 200);
    let again = outcome(tokio::spawn(pay(elsewhere, "k"))).await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(payments.begun.load(Ordering::SeqCst), 2);
    command(&server, &["FLUSHALL"]).await;
    works_again(&server, &[&locks, &other]).await;
}
