//! Slow, long and hostile request bodies.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http::request::Parts;
use http_body_util::{Full, Limited};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_distributed_lock::{LockKey, key};
use tower_http::limit::RequestBodyLimitLayer;
use tracing::Level;

use super::sockets::{http1, patient, serve};
use super::{locking, orders, problem, put, request, send, settle, text};
use crate::support::Log;

/// A body that begins and never ends.
pub(crate) fn dribbling(first: impl Into<Bytes>) -> Body {
    let begin = stream::iter([Ok::<_, io::Error>(first.into())]);
    Body::from_stream(begin.chain(stream::pending()))
}

/// Sends the requests at once. Returns when none proceeds without more of its body.
pub(crate) async fn sending(
    app: &Router,
    requests: impl IntoIterator<Item = Request<Body>>,
) -> JoinSet<Response> {
    let mut sending = JoinSet::new();
    for request in requests {
        let app = app.clone();
        sending.spawn(async move { send(&app, request).await });
    }
    settle().await;
    sending
}

/// Sends 128 KiB in chunks after the head that is sent already, and returns the answer.
pub(crate) async fn answer_to_chunks(mut client: TcpStream) -> String {
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..8 {
        client.write_all(chunk.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A body of unknown length that a limit outside of the layer cuts off, as `tower_http::limit` does.
pub(crate) fn limited() -> Body {
    let body = Body::from_stream(stream::iter(["12345", "67890"]).map(Ok::<_, io::Error>));
    Body::new(Limited::new(body, 9))
}

fn upload(path: &str, body: Body) -> Request<Body> {
    Request::put(path).body(body).unwrap()
}

fn reading() -> Router {
    Router::new().route(
        "/orders/{id}",
        any(async |body: Bytes| body.len().to_string()),
    )
}

#[tokio::test(start_paused = true)]
async fn a_slow_sender_holds_no_lock_by_default() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer);
    let slow = {
        let app = app.clone();
        tokio::spawn(async move { send(&app, upload("/orders/1", dribbling("x"))).await })
    };
    settle().await;
    assert!(store.is_free());
    assert_eq!(text(put(&app, "/orders/1").await).await, "0");
    slow.abort();
}

/// Between the layers of one `ServiceBuilder`, nothing makes `axum::body::Body` of a limited body again.
#[tokio::test(start_paused = true)]
async fn a_slow_sender_behind_a_limit_holds_no_lock_where_the_body_is_made_one_of_axum_again() {
    let (store, _locks, layer) = locking();
    let limit = RequestBodyLimitLayer::new(16);
    let layers = ServiceBuilder::new()
        .layer(limit)
        .map_request(|request: Request<_>| request.map(Body::new))
        .layer(layer.clone());
    let (log, _logging) = Log::at(Level::WARN);
    for app in [
        reading().layer(layers),
        reading().layer(layer.clone()).layer(limit),
    ] {
        let slow = tokio::spawn({
            let app = app.clone();
            async move { send(&app, upload("/orders/1", dribbling("x"))).await }
        });
        settle().await;
        assert!(store.is_free());
        assert_eq!(text(put(&app, "/orders/1").await).await, "0");
        slow.abort();
    }
    assert_eq!(log.text(), "");
    let app = reading().layer(ServiceBuilder::new().layer(limit).layer(layer));
    let sent = upload("/orders/1", Body::from("body"));
    assert_eq!(text(send(&app, sent).await).await, "4");
    assert!(log.text().contains("a slow sender holds its lock"));
}

#[tokio::test(start_paused = true)]
async fn a_body_of_a_type_that_is_not_read_is_logged_once_unless_it_is_streamed_on_purpose() {
    let (log, _logging) = Log::at(Level::WARN);
    let (_store, _locks, layer) = locking();
    let layer = layer.key(key::path());
    let serve = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let request = || Request::put("/orders/1").body(Full::<Bytes>::default());
    let streamed = layer.clone().stream_body().layer(serve);
    streamed.oneshot(request().unwrap()).await.unwrap();
    assert_eq!(log.text(), "");
    let by_default = layer.layer(serve);
    for _ in 0..2 {
        let service = by_default.clone();
        service.oneshot(request().unwrap()).await.unwrap();
    }
    let log = log.text();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("call `stream_body`"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_streamed_on_purpose_is_read_under_the_lock() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer.stream_body());
    let slow = tokio::spawn(async move { send(&app, upload("/orders/1", dribbling("x"))).await });
    settle().await;
    assert!(!store.is_free());
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_408_and_never_locks() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer.body_time_limit(Duration::from_secs(5)));
    let response = send(&app, upload("/orders/1", dribbling("x"))).await;
    let (status, problem) = problem(response).await;
    assert_eq!(status.as_u16(), 408);
    assert_eq!(problem["type"], "body-timeout");
    assert_eq!(store.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_not_finished_occupy_no_more_than_the_budget() {
    const KIB: usize = 1024;
    let (_store, _locks, layer) = locking();
    let layer = layer.buffer_body(64 * KIB).body_budget(256 * KIB);
    let app = reading().layer(layer);
    let block = || dribbling(vec![b'x'; 64 * KIB]);
    let requests = (0..4).map(|n| upload(&format!("/orders/{n}"), block()));
    let mut uploads = sending(&app, requests).await;
    let small = || upload("/orders/9", Body::from("fits"));
    let (status, problem) = problem(send(&app, small()).await).await;
    assert_eq!(status.as_u16(), 503);
    assert_eq!(problem["type"], "body-budget");
    assert_eq!(
        text(put(&app, "/orders/9").await).await,
        "0",
        "no body, no cost"
    );
    uploads.shutdown().await;
    settle().await;
    assert_eq!(text(send(&app, small()).await).await, "4");
}

#[tokio::test(start_paused = true)]
async fn a_sender_occupies_at_most_twice_what_it_has_sent() {
    const SENDERS: usize = 100;
    let (_store, _locks, layer) = locking();
    let budget = 4 * SENDERS;
    let app = reading().layer(layer.buffer_body(budget).body_budget(budget));
    let requests = (0..SENDERS).map(|n| upload(&format!("/orders/{n}"), dribbling("x")));
    let mut uploads = sending(&app, requests).await;
    let half = upload("/orders/9", Body::from(vec![b'x'; budget / 2]));
    assert_eq!(text(send(&app, half).await).await, "200");
    uploads.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_free_again_when_the_handlers_are_done() {
    let (_store, _locks, layer) = locking();
    let app = reading().layer(layer.buffer_body(8192).body_budget(8192));
    for _ in 0..10 {
        let response = send(&app, upload("/orders/1", Body::from(vec![b'x'; 8192]))).await;
        assert_eq!(text(response).await, "8192");
    }
}

/// The layer keeps the head of a request for a rejection of the program.
#[tokio::test(start_paused = true)]
async fn a_body_that_names_the_key_occupies_the_budget_until_its_handler_drops_it() {
    const SIZE: usize = 8192;
    for rejects in [false, true] {
        let (_store, _locks, layer) = locking();
        let layer = layer.buffer_body(SIZE).body_budget(SIZE);
        let layer = layer.key(key::json_field("lock:order", "/id"));
        let layer = match rejects {
            true => layer.rejection(|rejection, _| rejection.to_response()),
            false => layer,
        };
        let drop_and_work = async |body: Bytes| {
            drop(body);
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let app = Router::new()
            .route("/orders", any(drop_and_work))
            .layer(layer);
        let named = |id: &str| {
            let begin = format!("{{\"id\":\"{id}\"}}");
            upload("/orders", Body::from(format!("{begin:SIZE$}")))
        };
        let mut first = sending(&app, [named("1")]).await;
        assert_eq!(send(&app, named("2")).await.status(), 200, "{rejects}");
        assert_eq!(first.join_next().await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_names_too_many_keys_is_400_and_never_locks() {
    let (store, _locks, layer) = locking();
    let layer = layer.key(|parts: &Parts| {
        let many: usize = parts.uri.query().unwrap().parse().unwrap();
        (0..many)
            .map(|n| LockKey::from_parts("lock:order", [n.to_string()]))
            .collect::<Vec<_>>()
    });
    let app = orders().layer(layer.clone());
    let (status, problem) = problem(put(&app, "/orders/1?33").await).await;
    assert_eq!(status.as_u16(), 400);
    assert_eq!(problem["type"], "key-invalid");
    assert_eq!(store.asked(), 0);
    assert_eq!(put(&app, "/orders/1?32").await.status(), 200);
    let app = orders().layer(layer.clone().max_keys(2));
    assert_eq!(put(&app, "/orders/1?3").await.status(), 400);
    let app = orders().layer(layer.max_keys(2_000));
    assert_eq!(put(&app, "/orders/1?1024").await.status(), 200);
    let over_that_of_the_client = put(&app, "/orders/1?1025").await;
    assert_eq!(over_that_of_the_client.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_decided_before_its_body_is_read() {
    let (store, _locks, layer) = locking();
    let keyed = orders().layer(layer.clone().key(key::header("x-order")));
    let response = send(&keyed, upload("/orders/1", dribbling("x"))).await;
    assert_eq!(response.status(), 400);
    let mut unlocked = request("OPTIONS", "/orders/1");
    *unlocked.body_mut() = dribbling("x");
    let app = orders().layer(layer);
    assert_eq!(text(send(&app, unlocked).await).await, "unlocked");
    assert_eq!(store.asked(), 0);
}

#[tokio::test]
async fn a_client_that_sends_chunks_over_the_limit_sees_the_413() {
    let (_store, _locks, layer) = patient();
    let address = serve(reading().layer(layer.buffer_body(16))).await;
    let head = "PUT /orders/1 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let answer = answer_to_chunks(http1(address, head).await).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_a_body_over_the_limit_sees_the_413_and_sends_nothing() {
    let (_store, _locks, layer) = patient();
    let address = serve(reading().layer(layer.buffer_body(16))).await;
    let head = "PUT /orders/1 HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 17\r\nconnection: close\r\n\r\n";
    let mut client = http1(address, head).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_body_over_a_limit_outside_of_the_layer_is_413_too() {
    let (store, _locks, layer) = locking();
    let response = send(&reading().layer(layer), upload("/orders/1", limited())).await;
    let (status, problem) = problem(response).await;
    assert_eq!(status.as_u16(), 413);
    assert_eq!(problem["type"], "body-too-large");
    assert_eq!(store.asked(), 0);
}
