//! `ReleaseOn::BodyEnd`: the lock inside the response's body.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, LockHandle, LockMode, OnCancel, ReleaseOn,
};

mod confirmed;

use super::store::TestStore;
use super::{locking, put, request, send, settle};

fn at_body_end() -> (TestStore, DistributedLockLayer) {
    let (store, _locks, layer) = locking();
    (store, layer.release_on(ReleaseOn::BodyEnd))
}

fn answering(layer: DistributedLockLayer, body: fn() -> Response) -> Router {
    Router::new()
        .route("/orders/{id}", any(async move || body()))
        .layer(layer)
}

fn fixed() -> Response {
    Response::new(Body::from("fixed"))
}

/// Two frames, without a sign that the second is the last.
fn streaming() -> Response {
    let frames = stream::iter(["one", "two"]).map(Ok::<_, io::Error>);
    Response::new(Body::from_stream(frames))
}

/// A server does not poll a body whose declared length is zero.
fn declared_empty() -> Response {
    let mut response = Response::new(Body::from_stream(stream::empty::<io::Result<Bytes>>()));
    response.headers_mut().insert("content-length", 0.into());
    response
}

/// Two frames, and a declared length: a reader does not poll after the second.
fn measured() -> Response {
    let mut response = streaming();
    response.headers_mut().insert("content-length", 6.into());
    response
}

fn with_trailers() -> Response {
    let frames = stream::iter([
        Ok::<_, io::Error>(Frame::data(Bytes::from("one"))),
        Ok(Frame::trailers(HeaderMap::new())),
    ]);
    Response::new(Body::new(StreamBody::new(frames)))
}

/// A length that the body says itself, and trailers behind it.
fn measured_with_trailers() -> Response {
    let body = Full::<Bytes>::from("one");
    let mut response = Response::new(Body::new(body.with_trailers(async {
        tokio::task::yield_now().await;
        Some(Ok(HeaderMap::new()))
    })));
    response.headers_mut().insert("content-length", 3.into());
    response
}

async fn frame(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    let frame = body.frame().await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_until_the_body_has_ended() {
    for (response, knows_its_end) in [
        (fixed as fn() -> Response, true),
        (streaming, false),
        (measured, false),
        (with_trailers, false),
        (measured_with_trailers, false),
    ] {
        let (store, layer) = at_body_end();
        let mut body = put(&answering(layer, response), "/orders/1")
            .await
            .into_body();
        settle().await;
        assert!(!store.is_free());
        let (mut frames, mut has_ended) = (0, false);
        while !has_ended && let Some(frame) = frame(&mut body).await {
            frame.unwrap();
            frames += 1;
            has_ended = body.is_end_stream();
        }
        assert!(frames >= 1);
        // Otherwise HTTP/2 sends a frame for the end alone.
        assert!(has_ended || !knows_its_end);
        assert!(store.is_free(), "without waiting: the end was confirmed");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_frame_is_withheld_until_the_store_has_confirmed() {
    for (response, before) in [
        (fixed as fn() -> Response, 0),
        (measured, 1),
        (with_trailers, 1),
    ] {
        let (store, layer) = at_body_end();
        let app = answering(layer.confirm(Confirm::Strict), response);
        let mut body = put(&app, "/orders/1").await.into_body();
        for _ in 0..before {
            frame(&mut body).await.unwrap().unwrap();
        }
        store.silence(true);
        assert!(frame(&mut body).now_or_never().is_none());
        assert!(!body.is_end_stream());
        store.silence(false);
        frame(&mut body).await.unwrap().unwrap();
        assert!(store.is_free());
    }
}

/// No client reads what a handler sends beyond the length that it declares, so the lock is not held for it.
#[tokio::test(start_paused = true)]
async fn a_body_ends_at_its_declared_length_so_that_none_of_it_runs_without_the_lock() {
    for length in [3, 2] {
        let (store, layer) = at_body_end();
        let is_free = store.clone();
        let app = Router::new()
            .route(
                "/orders/{id}",
                any(async move || exceeding(length, is_free)),
            )
            .layer(layer);
        let mut body = put(&app, "/orders/1").await.into_body();
        assert_eq!(frame(&mut body).await.unwrap().unwrap(), "one");
        assert!(body.is_end_stream());
        assert!(store.is_free());
        assert!(frame(&mut body).await.is_none());
    }
}

/// A first frame that has the declared length or more, and a second one, which fails where the lock is free.
fn exceeding(length: u64, store: TestStore) -> Response {
    let frames = stream::iter(["one", "two"]).map(move |frame| {
        assert!(!store.is_free(), "{frame} runs without a lock");
        Ok::<_, io::Error>(frame)
    });
    let mut response = Response::new(Body::from_stream(frames));
    response
        .headers_mut()
        .insert("content-length", length.into());
    response
}

#[tokio::test(start_paused = true)]
async fn trailers_follow_a_body_that_says_its_length() {
    let (store, layer) = at_body_end();
    let mut body = put(&answering(layer, measured_with_trailers), "/orders/1")
        .await
        .into_body();
    assert_eq!(frame(&mut body).await.unwrap().unwrap(), "one");
    assert!(store.is_free());
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_body_of_unknown_length_is_withheld() {
    let (store, layer) = at_body_end();
    let mut body = put(&answering(layer, streaming), "/orders/1")
        .await
        .into_body();
    assert_eq!(frame(&mut body).await.unwrap().unwrap(), "one");
    assert_eq!(frame(&mut body).await.unwrap().unwrap(), "two");
    store.silence(true);
    assert!(frame(&mut body).now_or_never().is_none());
    store.silence(false);
    assert!(frame(&mut body).await.is_none());
    assert!(frame(&mut body).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_lock_was_stolen_ends_with_an_error() {
    for response in [fixed, streaming, measured, with_trailers] {
        let (store, layer) = at_body_end();
        let response = put(&answering(layer, response), "/orders/1").await;
        store.steal().await;
        let failed = response.into_body().collect().await.unwrap_err();
        assert!(failed.to_string().contains("the lock was lost"), "{failed}");
        assert!(store.is_free());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_cut_off_when_its_lock_is_lost() {
    let (store, layer) = at_body_end();
    let app = answering(layer, || {
        let never_ending = stream::pending::<Result<Bytes, io::Error>>();
        Response::new(Body::from_stream(never_ending))
    });
    let mut body = put(&app, "/orders/1").await.into_body();
    store.steal().await;
    let failed = tokio::time::timeout(Duration::from_secs(11), frame(&mut body)).await;
    assert!(failed.expect("found at the next renewal").unwrap().is_err());
    assert!(frame(&mut body).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_holds_for_the_longest_hold_at_most() {
    let (store, layer) = at_body_end();
    let app = answering(layer.max_hold(Duration::from_secs(60)), fixed);
    let body = put(&app, "/orders/1").await.into_body();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(!store.is_free());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(store.is_free());
    assert!(body.collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_or_fails_releases() {
    let (store, layer) = at_body_end();
    let response = put(&answering(layer.clone(), streaming), "/orders/1").await;
    drop(response);
    settle().await;
    assert!(store.is_free());

    let app = answering(layer, || {
        let broken = stream::iter([Ok("one"), Err(io::Error::other("it broke"))]);
        Response::new(Body::from_stream(broken))
    });
    let mut body = put(&app, "/orders/1").await.into_body();
    assert_eq!(frame(&mut body).await.unwrap().unwrap(), "one");
    let failed = frame(&mut body).await.unwrap().unwrap_err();
    assert!(failed.to_string().contains("it broke"));
    settle().await;
    assert!(store.is_free());
}

/// The response is dropped where the handler has ended, with its body and the lock.
#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_its_client_releases_with_the_body_that_is_not_read() {
    let (store, layer) = at_body_end();
    let slow = async || {
        tokio::time::sleep(Duration::from_secs(2)).await;
        streaming()
    };
    let app = Router::new()
        .route("/orders/{id}", any(slow))
        .layer(layer.on_cancel(OnCancel::RunToCompletion));
    let gone = tokio::time::timeout(Duration::from_secs(1), put(&app, "/orders/1")).await;
    assert!(gone.is_err());
    settle().await;
    assert!(!store.is_free());
    tokio::time::sleep(Duration::from_secs(1)).await;
    settle().await;
    assert!(store.is_free());
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_body_releases_before_its_head() {
    fn status(status: StatusCode) -> Response {
        let mut response = Response::new(Body::from("it is not read"));
        *response.status_mut() = status;
        response
    }
    for (method, response) in [
        ("HEAD", fixed as fn() -> Response),
        ("PUT", || Response::new(Body::empty())),
        ("PUT", declared_empty),
        ("PUT", || status(StatusCode::NO_CONTENT)),
        ("PUT", || status(StatusCode::NOT_MODIFIED)),
        ("PUT", || status(StatusCode::SWITCHING_PROTOCOLS)),
    ] {
        let (store, layer) = at_body_end();
        let response = send(&answering(layer, response), request(method, "/orders/1")).await;
        assert!(store.is_free(), "{method} {}", response.status());
    }
}

/// A router of axum empties such a response by itself.
#[tokio::test(start_paused = true)]
async fn a_connect_that_succeeds_releases_before_its_head() {
    let (store, layer) = at_body_end();
    let tunnel = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(fixed()));
    let service = layer.mode(LockMode::Write).layer(tunnel);
    let connect = service.oneshot(request("CONNECT", "/orders/1")).await;
    assert!(store.is_free());
    drop(connect);
}

/// The program asks for the lock that the body holds.
#[tokio::test(start_paused = true)]
async fn a_body_that_locks_what_its_layer_holds_fails_at_once() {
    let (_store, locks, layer) = locking();
    let again = async move |lock: LockHandle| {
        let again = locks.lock(lock.key()).mode(lock.mode()).acquire();
        let frames = stream::once(async { again.await.map(|_| "never") });
        Response::new(Body::from_stream(frames))
    };
    let app = Router::new()
        .route("/orders/{id}", any(again))
        .layer(layer.release_on(ReleaseOn::BodyEnd));
    let asked = Instant::now();
    let body = put(&app, "/orders/1").await.into_body();
    let failed = body.collect().await.unwrap_err();
    assert!(
        failed.to_string().contains("holds the key already"),
        "{failed}"
    );
    assert!(asked.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_fixed_body_is_still_known() {
    let (_store, layer) = at_body_end();
    let response = put(&answering(layer, fixed), "/orders/1").await;
    assert_eq!(response.headers()["content-length"], "5");
    assert_eq!(response.body().size_hint().exact(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_body_streams_without_a_lock_that_is_released_before_the_head() {
    let (store, _locks, layer) = locking();
    let response = put(&answering(layer, streaming), "/orders/1").await;
    assert!(store.is_free());
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "onetwo"
    );
}
