//! The answers of the layer in place of the handler's response.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router};
use futures_util::future::join_all;
use http::request::Parts;
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_distributed_lock::{
    Lease, LockClient, LockKey, LockMode, OnLost, Rejection, RejectionKind, key,
};

use super::{locking, orders, problem, put, request, settle, slow_orders, text};

fn retry_after_of(response: &Response) -> u64 {
    let told = response.headers()["retry-after"].to_str().unwrap();
    told.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_423_with_a_second_or_two_before_any_was_released() {
    let (_store, locks, layer) = locking();
    for lease in [400, 2_500, 3_600_000] {
        let lease = Duration::from_millis(lease);
        let key = LockKey::from_parts("path", ["/orders/1"]);
        let elsewhere = locks
            .lock(key)
            .mode(LockMode::Write)
            .lease(Lease::Fixed(lease));
        let elsewhere = elsewhere.await.unwrap();
        let app = orders().layer(layer.clone().key(key::path()).wait(Duration::ZERO));

        let response = put(&app, "/orders/1").await;
        let told = retry_after_of(&response);
        assert!((1..=2).contains(&told), "{told}");
        let rejection = response.extensions().get::<Rejection>().unwrap();
        assert_eq!(rejection.kind(), RejectionKind::Contended);
        let (status, problem) = problem(response).await;
        assert_eq!(status, 423);
        assert_eq!(problem["type"], "lock-contended");
        assert_eq!(problem["status"], 423);
        let told = problem.to_string();
        assert!(!told.contains("orders") && !told.contains(&locks.id().to_string()));
        elsewhere.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_queue_of_the_process_ends_with_a_time_to_come_back() {
    let (_store, _locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(std::future::pending::<()>))
        .layer(
            layer
                .wait(Duration::from_secs(1))
                .lease(Lease::Fixed(Duration::from_secs(8))),
        );
    let (_, queued) = tokio::join!(put(&app, "/orders/1"), async {
        settle().await;
        put(&app, "/orders/1").await
    });
    assert_eq!(queued.status(), 423);
    let told = retry_after_of(&queued);
    assert!((1..=2).contains(&told), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_behind_one_that_asks_the_store_ends_with_a_time_to_come_back() {
    for mode in [LockMode::Reentrant, LockMode::Write, LockMode::Read] {
        let (store, locks, layer) = locking();
        let layer = layer.key(key::path()).mode(mode);
        let name = key::LockKey::from_parts("path", ["/orders/1"]);
        let exclusive = if mode == LockMode::Reentrant {
            mode
        } else {
            LockMode::Write
        };
        let others = LockClient::new(store.clone());
        let lease = Lease::Fixed(Duration::from_secs(8));
        let elsewhere = others.lock(name).mode(exclusive);
        let elsewhere = elsewhere.lease(lease).await.unwrap();

        let patient = orders().layer(layer.clone().wait(Duration::from_secs(5)));
        let hasty = orders().layer(layer.wait(Duration::from_secs(1)));
        let (asking, queued) = tokio::join!(put(&patient, "/orders/1"), async {
            settle().await;
            put(&hasty, "/orders/1").await
        });
        for answer in [queued, asking] {
            let told = retry_after_of(&answer);
            assert!((1..=2).contains(&told), "{mode:?} {told}");
        }
        assert_eq!(locks.keys_in_use(), 0);
        elsewhere.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_comes_too_late_to_be_answered_is_423_too() {
    for mode in [LockMode::Reentrant, LockMode::Write, LockMode::Read] {
        let (store, _locks, layer) = locking();
        let layer = layer.key(|_: &Parts| LockKey::new("k")).mode(mode);
        let app = orders().layer(layer.wait(Duration::from_secs(1)));
        let others = LockClient::new(store.clone());
        let rival = match mode {
            LockMode::Read => LockMode::Write,
            mode => mode,
        };
        let elsewhere = others.lock("k").mode(rival).await.unwrap();

        // The waits of both are over at nearly the same time, and the second asks when the first has given up.
        let second = async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            put(&app, "/orders/1").await
        };
        let slow = async {
            tokio::time::sleep(Duration::from_millis(995)).await;
            store.silence(true);
        };
        let (first, second, ()) = tokio::join!(put(&app, "/orders/1"), second, slow);
        for answer in [first, second] {
            let told = retry_after_of(&answer);
            assert!((1..=2).contains(&told), "{mode:?} {told}");
            let (status, problem) = problem(answer).await;
            assert_eq!(
                (status, &problem["type"]),
                (StatusCode::LOCKED, &"lock-contended".into())
            );
        }
        store.silence(false);
        elsewhere.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_whole_budget_and_not_longer() {
    let (_store, _locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(std::future::pending::<()>))
        .layer(layer.wait(Duration::from_secs(7)));
    let holding = tokio::spawn({
        let app = app.clone();
        async move { put(&app, "/orders/1").await }
    });
    settle().await;
    let started = tokio::time::Instant::now();
    assert_eq!(put(&app, "/orders/1").await.status(), 423);
    assert!((7_000..7_100).contains(&started.elapsed().as_millis()));
    holding.abort();
}

#[tokio::test(start_paused = true)]
async fn one_waiter_too_many_is_503_at_once() {
    let (_store, _locks, layer) = locking();
    let app = slow_orders().layer(layer.max_waiters(1));
    let started = tokio::time::Instant::now();
    let (a, b, c) = tokio::join!(put(&app, "/orders/1"), put(&app, "/orders/1"), async {
        settle().await;
        let response = put(&app, "/orders/1").await;
        assert!(started.elapsed() < Duration::from_millis(10));
        response
    });
    assert_eq!((a.status(), b.status()), (StatusCode::OK, StatusCode::OK));
    assert!((1..=2).contains(&retry_after_of(&c)));
    let (status, problem) = problem(c).await;
    assert_eq!(status, 503);
    assert_eq!(problem["type"], "lock-overloaded");
}

#[tokio::test(start_paused = true)]
async fn with_no_waiters_allowed_the_third_request_is_503_at_once() {
    for mode in [LockMode::Reentrant, LockMode::Write, LockMode::Fair] {
        let (_store, _locks, layer) = locking();
        let app = slow_orders().layer(layer.mode(mode).max_waiters(0));
        // The first has the lock, the second asks the store, and no request may wait behind it.
        let requests = [(); 4].map(|()| put(&app, "/orders/1"));
        let answers = join_all(requests).await.into_iter();
        let statuses: Vec<_> = answers.map(|answer| answer.status().as_u16()).collect();
        assert!(statuses.starts_with(&[200]), "{mode:?}: {statuses:?}");
        assert!(statuses.ends_with(&[503, 503]), "{mode:?}: {statuses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_is_503_and_recovery_needs_nothing() {
    let (store, _locks, layer) = locking();
    let app = orders().layer(layer);
    store.unplug(true);
    let response = put(&app, "/orders/1").await;
    assert!((1..=2).contains(&retry_after_of(&response)));
    let (status, problem) = problem(response).await;
    assert_eq!(status, 503);
    assert_eq!(problem["type"], "lock-unavailable");
    store.unplug(false);
    assert_eq!(put(&app, "/orders/1").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_shut_down_is_503() {
    let (_store, locks, layer) = locking();
    let app = orders().layer(layer);
    locks.shutdown(Duration::from_secs(1)).await.unwrap();
    let (status, problem) = problem(put(&app, "/orders/1").await).await;
    assert_eq!(status, 503);
    assert_eq!(problem["type"], "lock-unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_500_of_unknown_outcome_and_no_hint_to_retry() {
    let (_store, _locks, layer) = locking();
    for on_lost in [OnLost::Abort, OnLost::Continue] {
        let lease = Lease::Fixed(Duration::from_millis(100));
        let app = slow_orders().layer(layer.clone().lease(lease).on_lost(on_lost));
        let response = put(&app, "/orders/1").await;
        assert!(response.headers().get("retry-after").is_none());
        let (status, problem) = problem(response).await;
        assert_eq!(status, 500);
        assert_eq!(problem["type"], "lock-lost");
        assert_eq!(problem["outcome"], "unknown");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_has_no_body() {
    let (store, _locks, layer) = locking();
    store.unplug(true);
    let custom = layer.clone().rejection(|_| "never seen".into_response());
    for layer in [layer, custom] {
        // An axum router would remove the body itself.
        let service = layer.layer(orders());
        let [head, get] = ["HEAD", "GET"].map(|method| request(method, "/orders/1"));
        let response = service.clone().oneshot(head).await.unwrap();
        assert!(response.extensions().get::<Rejection>().is_some());
        assert!(response.body().is_end_stream());
        let said = response.headers().get("content-length").cloned();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "");
        // The header has the length that the body would have: otherwise a server would set 0, unlike the answer to
        // GET.
        let body = service.oneshot(get).await.unwrap().into_body();
        let length = body.collect().await.unwrap().to_bytes().len();
        assert_eq!(said, Some(length.into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_answers_contention_with_another_status() {
    let (_store, _locks, layer) = locking();
    let app = slow_orders().layer(layer.wait(Duration::ZERO).rejection(|rejection| {
        let rejection = rejection.clone();
        rejection.with_status(StatusCode::CONFLICT).to_response()
    }));
    let (served, refused) = tokio::join!(put(&app, "/orders/1"), put(&app, "/orders/1"));
    assert_eq!(served.status(), 200);
    let rejection = refused.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.status(), 409, "as it was answered");
    let (status, problem) = problem(refused).await;
    assert_eq!(status, 409);
    assert_eq!(problem["status"], 409);
}

#[tokio::test(start_paused = true)]
async fn a_custom_answer_still_carries_the_rejection() {
    let (store, _locks, layer) = locking();
    let layer = layer
        .lease(Lease::Fixed(Duration::from_millis(100)))
        .rejection(|rejection| {
            let answer = json!({ "why": rejection.kind().as_str() });
            (StatusCode::IM_A_TEAPOT, Json(answer)).into_response()
        });
    let app = slow_orders().layer(layer);
    // After and before the handler has consumed the request.
    for why in ["lock-lost", "lock-unavailable"] {
        let response = put(&app, "/orders/1").await;
        assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
        let rejection = response.extensions().get::<Rejection>().unwrap();
        assert_eq!(rejection.status(), StatusCode::IM_A_TEAPOT);
        assert_eq!(rejection.kind().as_str(), why);
        let answer: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(answer, json!({ "why": why }));
        store.unplug(true);
    }
}
