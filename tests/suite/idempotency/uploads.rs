//! Request bodies that are slow, long or many.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post;
use http::Request;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tower_distributed_lock::idempotency::key;

use super::{lengths, problem, remembering, send};
use crate::layer::uploads::{answer_to_chunks, dribbling, limited};

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
    let layer = layer.key(key::stripe()).body_limit(16);
    let app = reading().layer(layer);
    let answer = send(&app, upload("k", dribbling("x"))).await;
    assert_eq!(answer.status(), 400);
    let answer = send(&app, upload("k", Body::from(vec![b'x'; 17]))).await;
    assert_eq!(answer.status(), 413);
    assert_eq!(store.asked(), 0);
}

#[tokio::test]
async fn a_client_that_sends_chunks_over_the_limit_sees_the_413() {
    let (_store, _locks, layer) = remembering();
    let address = lengths::serve(reading().layer(layer.body_limit(16))).await;
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
