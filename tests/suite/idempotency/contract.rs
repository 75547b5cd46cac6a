//! Tower's contract for layers, and the layer's contract for bodies.

use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_distributed_lock::{IdempotencyLayer, RejectionKind};
use tower_test::mock;

use super::{Runs, is_replay, pay, payments, problem, remembering, request, send, text};

#[tokio::test(start_paused = true)]
async fn without_a_key_a_request_passes_or_is_refused() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let keyless = || Request::post("/payments").body(Body::empty()).unwrap();
    let app = payments(&runs).layer(layer.clone());
    for _ in 0..2 {
        assert_eq!(send(&app, keyless()).await.status(), 201);
    }
    assert_eq!(runs.count(), 2);
    assert_eq!(store.asked(), 0, "nothing is locked for it");
    let app = payments(&runs).layer(layer.required());
    let (status, problem) = problem(send(&app, keyless()).await).await;
    assert_eq!((status, &problem["type"]), (400, &"key-missing".into()));
    assert_eq!(problem["detail"], "the header `idempotency-key` is missing");
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_a_request_with_a_key_has_a_limit_of_length() {
    let (_store, _locks, layer) = remembering();
    let echo = Router::new()
        .route(
            "/payments",
            post(async |body: Body| {
                let body = body.collect().await.unwrap().to_bytes();
                body.len().to_string()
            }),
        )
        .layer(layer)
        .layer(DefaultBodyLimit::max(10));
    let long = Request::post("/payments").body(Body::from("x".repeat(11)));
    assert_eq!(text(send(&echo, long.unwrap()).await).await, "11");
    assert_eq!(
        send(&echo, request("k", &"x".repeat(10))).await.status(),
        200
    );
    let (status, answer) = problem(send(&echo, request("k", &"x".repeat(11))).await).await;
    assert_eq!((status, &answer["type"]), (413, &"body-too-large".into()));
    let broken = Body::from_stream(stream::iter([Ok("x"), Err("gone")]));
    let broken = Request::post("/payments")
        .header("idempotency-key", "k")
        .body(broken);
    let (status, answer) = problem(send(&echo, broken.unwrap()).await).await;
    assert_eq!((status, &answer["type"]), (400, &"body-unreadable".into()));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_occupies_none_of_the_services_capacity() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let inner = tower::limit::ConcurrencyLimit::new(payments(&runs), 2);
    let service = layer.layer(inner);
    let call = |key: &str| service.clone().oneshot(request(key, "{}"));
    let others = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::time::timeout(Duration::from_millis(1500), call("other")).await
    };
    let (_, _, _, other) = tokio::join!(call("k"), call("k"), call("k"), others);
    assert!(other.is_ok(), "two waiting repeats do not fill it");
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_before_the_first_poll_and_the_service_is_made_ready_after() {
    let (store, _locks, layer) = remembering();
    let (inner, mut handle) = mock::pair::<Request<Full<Bytes>>, Response<Full<Bytes>>>();
    handle.allow(0);
    let mut service = layer.layer(tower::util::BoxCloneService::new(
        inner.map_err(|error| -> tower::BoxError { error }),
    ));
    assert!(matches!(
        futures_util::poll!(std::future::poll_fn(|cx| service.poll_ready(cx))),
        Poll::Ready(Ok(()))
    ));
    let request = Request::post("/payments")
        .header("idempotency-key", "k")
        .body(Full::from("{}"))
        .unwrap();
    let future = service.call(request);
    super::settle().await;
    assert_eq!(store.asked(), 0);
    let mut future = Box::pin(future);
    assert!(futures_util::poll!(&mut future).is_pending());
    super::settle().await;
    assert_eq!(store.asked(), 1);
    assert!(futures_util::poll!(Box::pin(handle.next_request())).is_pending());
    handle.allow(1);
    let (_request, respond) = handle.next_request().await.expect("it is claimed");
    respond.send_response(Response::new(Full::from("paid")));
    assert_eq!(future.await.expect("no error").status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_service_stays_one_and_is_not_recorded() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let counted = runs.clone();
    let service = layer.layer(service_fn(move |_: Request<Full<Bytes>>| {
        let run = counted.0.fetch_add(1, Ordering::Relaxed);
        async move {
            match run {
                0 => Err("out of order"),
                _ => Ok(Response::new(Full::<Bytes>::from("done"))),
            }
        }
    }));
    let request = || {
        Request::post("/payments")
            .header("idempotency-key", "k")
            .body(Full::from("{}"))
            .unwrap()
    };
    assert_eq!(
        service.clone().oneshot(request()).await.err(),
        Some("out of order")
    );
    let answer = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "done"
    );
}

#[tokio::test(start_paused = true)]
async fn two_layers_around_one_request_do_not_wait_for_each_other() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer.clone()).layer(layer);
    assert_eq!(pay(&app).await.status(), 201);
    assert!(is_replay(&pay(&app).await));
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn too_many_repeats_at_a_time_are_503() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    let one_more = async {
        super::settle().await;
        pay(&app).await
    };
    // One runs, and 64 wait for it.
    let served = join_all((0..65).map(|_| pay(&app)));
    let (served, one_more) = tokio::join!(served, one_more);
    assert!(served.iter().all(|answer| answer.status() == 201));
    let (status, problem) = problem(one_more).await;
    assert_eq!((status, &problem["type"]), (503, &"lock-overloaded".into()));
    assert_eq!(runs.count(), 1);
}

/// All who wait replay the answer of the first.
#[tokio::test(start_paused = true)]
async fn repeats_that_are_too_many_may_come_back_after_one_execution() {
    let (_store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer);
    // The first execution, which is measured, takes a second.
    assert_eq!(send(&app, request("before", "{}")).await.status(), 201);
    let answers = join_all((0..80).map(|_| pay(&app))).await;
    let refused = answers.iter().filter(|answer| answer.status() == 503);
    let told: Vec<u64> = refused
        .map(|answer| answer.headers()["retry-after"].to_str().unwrap())
        .map(|seconds| seconds.parse().unwrap())
        .collect();
    assert!(told.len() >= 15, "{told:?}");
    // A second, and up to two more; and the part of a millisecond that the runs took longer.
    assert!(told.iter().all(|seconds| *seconds <= 4), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_can_be_answered_otherwise() {
    let (_store, locks, _layer) = remembering();
    let layer = IdempotencyLayer::new(locks)
        .shared()
        .required()
        .rejection(|rejection| {
            assert_eq!(rejection.kind(), RejectionKind::KeyMissing);
            Response::builder()
                .status(418)
                .body(rejection.to_string())
                .unwrap()
        });
    let app = payments(&Runs::default()).layer(layer);
    let keyless = Request::post("/payments").body(Body::empty()).unwrap();
    let answer = send(&app, keyless).await;
    assert_eq!(answer.status(), 418);
    assert!(text(answer).await.starts_with("key-missing"));
}
