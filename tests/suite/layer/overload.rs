//! The delay of refusals while too many requests wait.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::Request;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_distributed_lock::{DistributedLockLayer, LockClient, Resource, key};

use super::{locking, problem, put, request, send, settle, slow_orders};

const SECOND: Duration = Duration::from_secs(1);
const ORDER: Resource = Resource::new("lock:order");

/// A layer on a key that another process holds for a long time, and a request that waits for it. Every other request is refused.
async fn overloaded(
    configure: impl FnOnce(DistributedLockLayer) -> DistributedLockLayer,
) -> (Router, JoinSet<()>) {
    let (store, _locks, layer) = locking();
    let layer = layer.max_waiters(0).wait(1_000 * SECOND);
    let app = slow_orders().layer(configure(layer).key(key::param(ORDER, "id")));
    let elsewhere = LockClient::new(store);
    let held = elsewhere.lock(ORDER.id(1)).await.expect("free");
    let mut busy = JoinSet::new();
    let asking = app.clone();
    busy.spawn(async move {
        put(&asking, "/orders/1").await;
        drop(held);
    });
    settle().await;
    (app, busy)
}

/// Sends requests that are refused, each at once after the answer to the one before. Returns how long the answers took
/// together.
async fn hammer(app: &Router, clients: usize, requests: usize) -> Duration {
    let began = Instant::now();
    let client = async || {
        for _ in 0..requests {
            assert_eq!(put(app, "/orders/1").await.status(), 503);
        }
    };
    join_all((0..clients).map(|_| client())).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn clients_that_ignore_retry_after_get_a_thousand_refusals_a_second() {
    let (app, _busy) = overloaded(|layer| layer).await;
    let took = hammer(&app, 100, 50).await;
    // The first is not delayed.
    assert!(took >= Duration::from_millis(4_999), "{took:?}");
    assert!(took < Duration::from_millis(5_100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_never_longer_than_the_longest_or_the_wait() {
    const SHORT: Duration = Duration::from_millis(100);
    for shortened in [
        |layer: DistributedLockLayer| layer.overload_delay(SHORT),
        |layer: DistributedLockLayer| layer.overload_delay(SECOND).wait(SHORT),
    ] {
        let (app, _busy) = overloaded(shortened).await;
        let took = hammer(&app, 1_000, 1).await;
        // The clock of tokio ticks in milliseconds.
        let tick = Duration::from_millis(1);
        assert!(took > SHORT / 2 && took <= SHORT + tick, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_answers_at_once() {
    let (app, _busy) = overloaded(|layer| layer.overload_delay(Duration::ZERO)).await;
    assert_eq!(hammer(&app, 10, 10).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn clients_that_come_back_when_they_are_told_to_are_not_delayed() {
    let (app, _busy) = overloaded(|layer| layer).await;
    for _ in 0..20 {
        assert_eq!(hammer(&app, 1, 1).await, Duration::ZERO);
        tokio::time::sleep(SECOND / 100).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_while_its_refusal_is_delayed_delays_no_other_one() {
    let (app, _busy) = overloaded(|layer| layer).await;
    for _ in 0..500 {
        // Polled once, and dropped.
        let refused = put(&app, "/orders/1").now_or_never();
        drop(refused);
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(hammer(&app, 1, 1).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_refusal_holds_no_body() {
    const ORDER_1: &str = r#"{"id":1}"#;
    let (store, _locks, layer) = locking();
    let layer = layer
        .key(key::json_field(ORDER, "/id"))
        .max_waiters(0)
        .wait(1_000 * SECOND)
        .buffer_body(ORDER_1.len())
        // That of the request that waits, and one more.
        .body_budget(2 * ORDER_1.len());
    let app = slow_orders().layer(layer);
    let elsewhere = LockClient::new(store);
    let _held = elsewhere.lock(ORDER.id(1)).await.expect("free");
    let order = || {
        let request = Request::put("/orders/1").header("content-type", "application/json");
        send(&app, request.body(Body::from(ORDER_1)).expect("valid"))
    };
    let refused = async {
        settle().await;
        let began = Instant::now();
        let answers = join_all((0..50).map(|_| order())).await;
        assert!(began.elapsed() >= Duration::from_millis(49));
        for answer in answers {
            let (status, problem) = problem(answer).await;
            assert_eq!(status, 503);
            assert_eq!(problem["type"], "lock-overloaded");
        }
    };
    tokio::select! {
        _ = order() => panic!("the lock is held"),
        () = refused => {}
    }
}

#[tokio::test(start_paused = true)]
async fn other_refusals_are_not_delayed() {
    let (_store, locks, layer) = locking();
    let layer = layer.key(key::param(ORDER, "id")).wait(Duration::ZERO);
    let app = slow_orders().layer(layer);
    let _held = locks.lock(ORDER.id(1)).await.expect("free");
    let began = Instant::now();
    for _ in 0..10 {
        let answer = send(&app, request("PUT", "/orders/1")).await;
        assert_eq!(answer.status(), 423);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}
