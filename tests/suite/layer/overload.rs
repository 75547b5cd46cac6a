//! Requests that would be refused anyway: their bodies are not awaited.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt;
use http::Request;
use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::client::LockEventKind;
use tower_distributed_lock::{DistributedLockLayer, LockClient, LockError, Resource, key};

use super::uploads::{dribbling, sending};
use super::{locking, problem, put, request, send, settle, slow_orders, text};

mod tarpit;

const SECOND: Duration = Duration::from_secs(1);
const ORDER: Resource = Resource::new("lock:order");

fn by_id(layer: DistributedLockLayer) -> Router {
    slow_orders().layer(layer.key(key::param(ORDER, "id")))
}

/// Sends a body that never ends.
async fn upload(app: &Router) -> Response {
    let request = Request::put("/orders/1").body(dribbling("x"));
    let answer = send(app, request.expect("valid"));
    timeout(30 * SECOND, answer)
        .await
        .expect("it is refused by its head")
}

async fn is_refused_by_its_head(app: &Router, kind: &str) {
    let (status, problem) = problem(upload(app).await).await;
    assert_eq!((status.as_u16(), &problem["type"]), (503, &kind.into()));
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_key_with_a_full_queue() {
    let (store, locks, layer) = locking();
    let mut events = locks.events();
    let app = by_id(layer.max_waiters(1).wait(1_000 * SECOND));
    let elsewhere = LockClient::new(store);
    let held = elsewhere.lock(ORDER.id(1)).await.expect("free");
    // One asks for all, and one waits behind it.
    let waiting = [(); 2].map(|()| {
        let app = app.clone();
        tokio::spawn(async move { put(&app, "/orders/1").await })
    });
    settle().await;
    let began = Instant::now();
    is_refused_by_its_head(&app, "lock-overloaded").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let event = events.next().now_or_never().flatten().expect("an event");
    let LockEventKind::Refused { error, .. } = event.kind else {
        panic!("{event:?}");
    };
    assert!(matches!(error, LockError::Overloaded), "{error}");
    held.release().await.expect("held");
    for served in waiting {
        assert_eq!(served.await.expect("no panic").status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_an_owner_is_not_refused_for_a_queue_that_it_need_not_join() {
    let (_store, locks, layer) = locking();
    let layer = layer.max_waiters(1).wait(1_000 * SECOND);
    let inner = layer.clone().key(key::param(ORDER, "id"));
    let app = slow_orders().layer(inner.clone()).layer(inner);
    let others = locks.lock(ORDER.id(1)).max_waiters(2);
    let first = tokio::spawn({
        let app = app.clone();
        async move { put(&app, "/orders/1").await }
    });
    settle().await;
    let waiting: Vec<_> = (0..2)
        .map(|_| tokio::spawn(others.clone().acquire()))
        .collect();
    settle().await;
    assert_eq!(first.await.expect("no panic").status(), 200);
    for waiter in waiting {
        let guard = waiter.await.expect("no panic").expect("its turn");
        guard.release().await.expect("held");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_while_the_store_does_not_answer() {
    let (store, _locks, layer) = locking();
    let app = by_id(layer.wait(SECOND));
    store.unplug(true);
    // The first one finds it out.
    assert_eq!(put(&app, "/orders/1").await.status(), 503);
    is_refused_by_its_head(&app, "lock-unavailable").await;
    store.unplug(false);
    let request = Request::put("/orders/1").body(Body::from("body"));
    let served = send(&app, request.expect("valid")).await;
    assert_eq!(text(served).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_silent_store_as_long_as_it_would_for_a_lock() {
    let (store, _locks, layer) = locking();
    let wait = Duration::from_millis(100);
    let app = slow_orders().layer(layer.wait(wait));
    store.silence(true);
    // The second request knows from the first that the store does not answer.
    for _ in 0..2 {
        let began = Instant::now();
        let answer = timeout(SECOND, put(&app, "/orders/1")).await;
        let (status, problem) = problem(answer.expect("it waits no longer")).await;
        assert_eq!(
            (status, &problem["type"]),
            (503.try_into().unwrap(), &"lock-unavailable".into())
        );
        assert!(began.elapsed() >= wait);
    }
    store.silence(false);
    assert_eq!(put(&app, "/orders/1").await.status(), 200);
}

/// While the store is silent, a request with a body asks it before its body is read.
#[tokio::test(start_paused = true)]
async fn what_a_request_waits_for_before_its_body_is_read_is_a_part_of_its_wait() {
    let (store, _locks, layer) = locking();
    let app = by_id(layer.wait(SECOND));
    let elsewhere = LockClient::new(store.clone());
    let held = elsewhere.lock(ORDER.id(1)).await.expect("free");
    store.silence(true);
    assert_eq!(put(&app, "/orders/1").await.status(), 503);
    let began = Instant::now();
    let request = Request::put("/orders/1").body(Body::from("body"));
    let (answer, ()) = tokio::join!(send(&app, request.expect("valid")), async {
        sleep(SECOND * 9 / 10).await;
        store.silence(false);
    });
    assert_eq!(answer.status(), 423);
    assert!(began.elapsed() < SECOND * 11 / 10, "{:?}", began.elapsed());
    held.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_keeps_no_more_requests_than_may_wait() {
    let (store, _locks, layer) = locking();
    let app = by_id(layer.max_waiters(1));
    store.silence(true);
    assert_eq!(put(&app, "/orders/1").await.status(), 503);
    let requests = (0..50).map(|n| {
        let mut request = request("PUT", "/orders/1");
        if n % 2 == 0 {
            *request.body_mut() = Body::from("body");
        }
        request
    });
    let mut answers = sending(&app, requests).await;
    let refused = std::iter::from_fn(|| answers.try_join_next());
    // One asks before its body is read, one asks for the lock, and one waits behind it.
    assert_eq!(refused.count(), 47);
}

#[tokio::test(start_paused = true)]
async fn a_request_after_the_shutdown() {
    let (_store, locks, layer) = locking();
    let in_body = layer.clone().key(key::json_field(ORDER, "/id"));
    locks.shutdown(SECOND).await.expect("nothing is held");
    for app in [by_id(layer), slow_orders().layer(in_body)] {
        is_refused_by_its_head(&app, "lock-unavailable").await;
    }
}
