//! Request bodies that are slow, long or many.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use http::Request;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::idempotency::key;

use super::{is_replay, lengths, problem, remembering, send, text};
use crate::layer::uploads::{answer_to_chunks, dribbling, limited, sending};

fn upload(key: &str, body: Body) -> Request<Body> {
    let request = Request::post("/payments").header("idempotency-key", key);
    request.body(body).unwrap()
}

/// Answers with the length of the body.
fn reading() -> Router {
    let length = async |body: Bytes| body.len().to_string();
    Router::new().route("/payments", post(length))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_400_and_claims_nothing() {
    let (store, _locks, layer) = remembering();
    let app = reading().layer(layer);
    let answer = send(&app, upload("k", dribbling("x"))).await;
    let (status, problem) = problem(answer).await;
    assert_eq!(status, 400);
    assert!(problem["type"].as_str().unwrap().ends_with("body-timeout"));
    assert_eq!(store.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_names_the_key_is_read_within_the_same_limits() {
    let (store, _locks, layer) = remembering();
    let layer = layer.key(key::stripe());
    let app = reading().layer(layer).layer(DefaultBodyLimit::max(16));
    let answer = send(&app, upload("k", dribbling("x"))).await;
    assert_eq!(answer.status(), 400);
    let answer = send(&app, upload("k", Body::from(vec![b'x'; 17]))).await;
    assert_eq!(answer.status(), 413);
    assert_eq!(store.asked(), 0);
}

#[tokio::test]
async fn a_client_that_sends_chunks_over_the_limit_sees_the_413() {
    let (_store, _locks, layer) = remembering();
    let address = lengths::serve(reading().layer(layer).layer(DefaultBodyLimit::max(16))).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let head = "POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = answer_to_chunks(client).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_body_over_a_limit_outside_of_the_layer_is_413_too() {
    let (store, _locks, layer) = remembering();
    let answer = send(&reading().layer(layer), upload("k", limited())).await;
    let (status, problem) = problem(answer).await;
    assert_eq!(status, 413);
    assert_eq!(problem["type"], "body-too-large");
    assert_eq!(store.asked(), 0);
}

/// Sends a body that does not end, and returns the status and the problem's type.
async fn is_refused_by_its_head(app: &Router, kind: &str) {
    let answer = send(app, upload("k", dribbling("x")));
    let answer = timeout(Duration::from_secs(30), answer).await;
    let (status, problem) = problem(answer.expect("its body is not awaited")).await;
    assert_eq!((status, &problem["type"]), (503, &kind.into()));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_be_refused_anyway_is_refused_by_its_head() {
    let (store, locks, layer) = remembering();
    let app = reading().layer(layer.clone());
    store.unplug(true);
    // The first one finds it out.
    let first = send(&app, upload("k", Body::from("body"))).await;
    assert_eq!(first.status(), 503);
    is_refused_by_its_head(&app, "lock-unavailable").await;
    store.unplug(false);
    let served = send(&app, upload("k", Body::from("body"))).await;
    assert_eq!(text(served).await, "4");
    locks.shutdown(Duration::from_secs(1)).await.unwrap();
    for app in [app, reading().layer(layer.key(key::stripe()))] {
        is_refused_by_its_head(&app, "lock-unavailable").await;
    }
}

/// While the store is silent, a repeat with a body asks it before its body is read.
#[tokio::test(start_paused = true)]
async fn what_a_repeat_waits_for_before_its_body_is_read_is_a_part_of_its_wait() {
    let (store, _locks, layer) = remembering();
    let slow = async |_: Bytes| sleep(Duration::from_secs(10)).await;
    let app = Router::new().route("/payments", post(slow)).layer(layer);
    let running = sending(&app, [upload("k", Body::from("body"))]).await;
    store.silence(true);
    let other = send(&app, upload("other", Body::empty())).await;
    assert_eq!(other.status(), 503);
    let began = Instant::now();
    let (repeat, ()) = tokio::join!(send(&app, upload("k", Body::from("body"))), async {
        sleep(Duration::from_millis(2500)).await;
        store.silence(false);
    });
    assert_eq!(repeat.status(), 409);
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(3200), "{waited:?}");
    assert_eq!(running.join_all().await.len(), 1);
}

/// The process has the record, and asks no store for it.
#[tokio::test(start_paused = true)]
async fn a_remembered_repeat_is_answered_while_the_store_is_down() {
    let (store, _locks, layer) = remembering();
    let app = reading().layer(layer.local_records(1));
    send(&app, upload("k", Body::from("body"))).await;
    store.unplug(true);
    let other = send(&app, upload("other", Body::from("body"))).await;
    assert_eq!(other.status(), 503);
    let repeat = send(&app, upload("k", Body::from("body"))).await;
    assert!(is_replay(&repeat));
}

#[tokio::test(start_paused = true)]
async fn the_bodies_of_repeats_that_wait_have_a_limit_for_each_key() {
    const LENGTH: usize = 2 * 1024 * 1024;
    let (_store, _locks, layer) = remembering();
    let slow = async |body: Bytes| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        body.len().to_string()
    };
    let app = Router::new().route("/payments", post(slow)).layer(layer);
    let repeat = || upload("k", Body::from(vec![b'x'; LENGTH]));
    let mut waiting = sending(&app, (0..12).map(|_| repeat())).await;
    let mut statuses = Vec::new();
    while let Some(answer) = waiting.join_next().await {
        statuses.push(answer.unwrap().status().as_u16());
    }
    statuses.sort_unstable();
    // One runs, and as many wait as 16 MiB hold beside the free part of each.
    assert_eq!(statuses, [[200; 9].as_slice(), &[503; 3]].concat());
    let other = upload("other", Body::from(vec![b'x'; LENGTH]));
    assert_eq!(send(&app, other).await.status(), 200);
}
