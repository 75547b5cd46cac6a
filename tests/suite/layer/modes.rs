//! The lock modes of requests.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::any;
use http::Request;
use http::request::Parts;
use tower::{Layer, ServiceExt, service_fn};
use tower_distributed_lock::layer::mode::{by_method, writes_only};
use tower_distributed_lock::{DistributedLockLayer, LockHandle, LockMode};

use super::{locking, request, send};

/// HEAD and CONNECT lose their bodies on the way, headers do not.
async fn tell(lock: Option<LockHandle>) -> HeaderMap {
    let mode = lock.map_or("none", |lock| lock.mode().as_str());
    HeaderMap::from_iter([("mode".parse().unwrap(), mode.parse().unwrap())])
}

async fn modes<const N: usize>(layer: DistributedLockLayer, methods: [&str; N]) -> [String; N] {
    let app = Router::new().route("/orders/{id}", any(tell)).layer(layer);
    let mut modes = [const { String::new() }; N];
    for (mode, method) in modes.iter_mut().zip(methods) {
        let response = send(&app, request(method, "/orders/1")).await;
        *mode = response.headers()["mode"].to_str().unwrap().into();
    }
    modes
}

const READING: [&str; 3] = ["GET", "HEAD", "QUERY"];
/// They concern no resource: a preflight of CORS must not wait for one.
const PASSING: [&str; 2] = ["OPTIONS", "TRACE"];
const WRITING: [&str; 6] = ["PUT", "POST", "PATCH", "DELETE", "PROPFIND", "get"];

#[tokio::test(start_paused = true)]
async fn three_methods_read_two_need_no_lock_and_the_others_write() {
    let (_store, _locks, layer) = locking();
    for layer in [layer.clone(), layer.mode(by_method())] {
        assert_eq!(modes(layer.clone(), READING).await, ["read"; 3]);
        assert_eq!(modes(layer.clone(), PASSING).await, ["none"; 2]);
        assert_eq!(modes(layer, WRITING).await, ["write"; 6]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_mode_is_for_every_method() {
    let (_store, _locks, layer) = locking();
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let layer = layer.clone().mode(mode);
        assert_eq!(modes(layer.clone(), READING).await, [mode.as_str(); 3]);
        assert_eq!(modes(layer.clone(), PASSING).await, [mode.as_str(); 2]);
        assert_eq!(modes(layer, WRITING).await, [mode.as_str(); 6]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_writes_are_locked_if_reads_need_no_lock() {
    let (_store, _locks, layer) = locking();
    let layer = layer.mode(writes_only());
    assert_eq!(modes(layer.clone(), READING).await, ["none"; 3]);
    assert_eq!(modes(layer.clone(), PASSING).await, ["none"; 2]);
    assert_eq!(modes(layer, WRITING).await, ["write"; 6]);
}

/// RFC 8441: it is a CONNECT with a path, and any other CONNECT has none. What its client sends is no body.
#[tokio::test(start_paused = true)]
async fn a_websocket_over_http_2_is_locked_as_one_over_http_1_is() {
    let (_store, _locks, layer) = locking();
    let service = layer.layer(service_fn(async |request: Request<Body>| {
        let lock = LockHandle::of(request.extensions()).cloned();
        Ok::<_, Infallible>(tell(lock).await.into_response())
    }));
    for (target, mode) in [("/orders/1", "read"), ("orders.example:443", "none")] {
        let request = Request::connect(target).body(Body::empty());
        let answer = service.clone().oneshot(request.expect("valid")).await;
        assert_eq!(
            answer.expect("infallible").headers()["mode"],
            mode,
            "{target}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_decides_otherwise() {
    let (_store, _locks, layer) = locking();
    let graphql = layer.mode(|parts: &Parts| match parts.method.as_str() {
        "POST" => Some(LockMode::Read),
        _ => None,
    });
    assert_eq!(modes(graphql, ["POST", "PUT"]).await, ["read", "none"]);
}
