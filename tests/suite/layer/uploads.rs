//! Slow, long and hostile request bodies.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http::request::Parts;
use http_body::Body as _;
use http_body_util::{BodyExt, Full, Limited};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_distributed_lock::{LockClient, LockKey, LockMode, key};
use tower_http::limit::RequestBodyLimitLayer;

use super::sockets::{http1, patient, serve};
use super::{locking, orders, problem, put, request, send, settle, text};

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

/// Between the layers of one `ServiceBuilder`, nothing makes `axum::body::Body` of a limited body again: the compiler refuses it.
#[tokio::test(start_paused = true)]
async fn a_slow_sender_behind_a_limit_holds_no_lock() {
    let (store, _locks, layer) = locking();
    let limit = RequestBodyLimitLayer::new(16);
    let layers = ServiceBuilder::new()
        .layer(limit)
        .map_request(|request: Request<_>| request.map(Body::new))
        .layer(layer.clone());
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
}

/// Any body that can be made of bytes is read, and not only that of axum.
#[tokio::test(start_paused = true)]
async fn without_axum_a_body_that_is_made_of_bytes_is_read() {
    let (_store, _locks, layer) = locking();
    let lengths = service_fn(async |request: Request<Full<Bytes>>| {
        let length = request.body().size_hint().exact().unwrap_or_default();
        Ok::<_, Infallible>(http::Response::new(length.to_string()))
    });
    let service = layer
        .key(key::json_field("lock:order", "/id"))
        .layer(lengths);
    let request = Request::put("/orders").body(Full::from(r#"{"id":1}"#));
    let answer = service.oneshot(request.unwrap()).await.unwrap();
    let told = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(told, "8");
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
async fn a_body_that_takes_too_long_is_400_and_never_locks() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer);
    let response = send(&app, upload("/orders/1", dribbling("x"))).await;
    let (status, problem) = problem(response).await;
    assert_eq!(status.as_u16(), 400, "clients repeat a 408 by themselves");
    assert_eq!(problem["type"], "body-timeout");
    assert_eq!(store.asked(), 0);
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A body of a megabyte and a bit, whose end does not come.
fn stalled(n: usize) -> Request<Body> {
    upload(
        &format!("/orders/{n}"),
        dribbling(vec![b'x'; MIB + 64 * KIB]),
    )
}

async fn is_served(app: &Router, n: usize, length: usize) {
    let body = Body::from(vec![b'x'; length]);
    let answer = send(app, upload(&format!("/orders/{n}"), body)).await;
    assert_eq!(text(answer).await, length.to_string());
}

/// Together they have more than may wait for locks, and some of them send a drop now and then to look alive.
#[tokio::test(start_paused = true)]
async fn slow_uploads_take_no_room_from_others() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer);
    let drips = (64..80).map(|n| {
        let begin = stream::iter([Bytes::from(vec![b'x'; MIB + 64 * KIB])]);
        let drips = stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Some((Bytes::from_static(b"x"), ()))
        });
        let body = Body::from_stream(begin.chain(Box::pin(drips)).map(Ok::<_, io::Error>));
        upload(&format!("/orders/{n}"), body)
    });
    let mut slow = sending(&app, (0..64).map(stalled).chain(drips)).await;
    for n in 0..8 {
        is_served(&app, 1_000 + n, 2 * MIB).await;
    }
    let asked = store.asked();
    assert!(
        slow.try_join_next().is_none(),
        "they may go on for a minute"
    );
    tokio::time::sleep(Duration::from_secs(61)).await;
    while let Some(answer) = slow.join_next().await {
        let (status, problem) = problem(answer.unwrap()).await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (400, &"body-timeout".into())
        );
    }
    assert_eq!(store.asked(), asked, "they locked nothing");
}

/// As an application does that stores what it gets.
#[tokio::test(start_paused = true)]
async fn a_handler_that_keeps_its_body_takes_no_room_from_others() {
    let (_store, _locks, layer) = locking();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = async move |body: Bytes| {
        let length = body.len();
        kept.lock().unwrap().push(body);
        length.to_string()
    };
    let app = Router::new().route("/orders/{id}", any(keep)).layer(layer);
    for n in 0..70 {
        is_served(&app, n, MIB).await;
    }
}

/// Eight of them have as much as a key may have.
#[tokio::test(start_paused = true)]
async fn the_bodies_that_wait_for_one_key_take_no_room_from_other_keys() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer.key(key::param("lock:order", "id")));
    let elsewhere = LockClient::new(store);
    let held = elsewhere.lock("lock:order:1").mode(LockMode::Write);
    let _held = held.await.unwrap();
    let full = || upload("/orders/1", Body::from(vec![b'x'; 2 * MIB]));
    let mut waiting = sending(&app, (0..40).map(|_| full())).await;
    let mut refused = 0;
    while let Some(answer) = waiting.try_join_next() {
        let (status, problem) = problem(answer.unwrap()).await;
        assert_eq!(status.as_u16(), 503);
        assert_eq!(problem["type"], "body-budget");
        refused += 1;
    }
    assert_eq!(refused, 32);
    is_served(&app, 2, 2 * MIB).await;
}

/// A stranger holds keys of its own by slow requests, and lets bodies wait for each of them.
#[tokio::test(start_paused = true)]
async fn the_bodies_that_wait_for_many_keys_take_no_room_from_other_keys() {
    let (store, _locks, layer) = locking();
    let app = reading().layer(layer.key(key::param("lock:order", "id")));
    let elsewhere = LockClient::new(store);
    let keys = (0..8).map(|n| (format!("lock:order:{n}"), LockMode::Write));
    let held = elsewhere.lock_all(keys).await.unwrap();
    let full = |n| upload(&format!("/orders/{n}"), Body::from(vec![b'x'; 2 * MIB]));
    let mut waiting = sending(&app, (0..40).map(|n| full(n % 8))).await;
    assert!(waiting.try_join_next().is_none(), "each has its room");
    is_served(&app, 8, 2 * MIB).await;
    held.release().await.unwrap();
    while let Some(answer) = waiting.join_next().await {
        assert_eq!(answer.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_axum_is_the_limit_of_the_layer() {
    for (limit, length, status) in [
        (None, 2 * MIB, 200),
        (None, 2 * MIB + 1, 413),
        (Some(DefaultBodyLimit::max(5 * MIB)), 5 * MIB, 200),
        (Some(DefaultBodyLimit::max(5 * MIB)), 5 * MIB + 1, 413),
        (Some(DefaultBodyLimit::max(16)), 17, 413),
        (Some(DefaultBodyLimit::disable()), 8 * MIB, 200),
        (Some(DefaultBodyLimit::disable()), 64 * MIB + 1, 413),
    ] {
        let (store, _locks, layer) = locking();
        let app = reading().layer(layer);
        let app = match limit {
            Some(limit) => app.layer(limit),
            None => app,
        };
        let answer = send(&app, upload("/orders/1", Body::from(vec![b'x'; length]))).await;
        assert_eq!(answer.status().as_u16(), status, "{length}");
        assert_eq!(store.asked() > 0, status == 200, "{length}");
        if status == 413 {
            // Each is one byte too long.
            let detail = problem(answer).await.1["detail"].to_string();
            assert!(
                detail.contains(&format!(" {} bytes", length - 1)),
                "{detail}"
            );
        }
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
    let app = orders().layer(layer);
    let (status, problem) = problem(put(&app, "/orders/1?1025").await).await;
    assert_eq!(status.as_u16(), 400);
    assert_eq!(problem["type"], "key-invalid");
    assert_eq!(store.asked(), 0);
    assert_eq!(put(&app, "/orders/1?1024").await.status(), 200);
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
    let address = serve(reading().layer(layer).layer(DefaultBodyLimit::max(16))).await;
    let head = "PUT /orders/1 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let answer = answer_to_chunks(http1(address, head).await).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_a_body_over_the_limit_sees_the_413_and_sends_nothing() {
    let (_store, _locks, layer) = patient();
    let address = serve(reading().layer(layer).layer(DefaultBodyLimit::max(16))).await;
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
