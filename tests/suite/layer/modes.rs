//! The lock modes of requests.

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::any;
use http::request::Parts;
use tower_distributed_lock::{DistributedLockLayer, LockHandle, LockMode, by_method};

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

const SAFE: [&str; 5] = ["GET", "HEAD", "QUERY", "OPTIONS", "TRACE"];
const WRITING: [&str; 7] = [
    "PUT", "POST", "PATCH", "DELETE", "PROPFIND", "CONNECT", "get",
];

#[tokio::test(start_paused = true)]
async fn safe_methods_read_and_unknown_ones_write() {
    let (_store, _locks, layer) = locking();
    for layer in [layer.clone(), layer.mode(by_method())] {
        assert_eq!(modes(layer.clone(), SAFE).await, ["read"; 5]);
        assert_eq!(modes(layer, WRITING).await, ["write"; 7]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_mode_is_for_every_method() {
    let (_store, _locks, layer) = locking();
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let layer = layer.clone().mode(mode);
        assert_eq!(modes(layer.clone(), SAFE).await, [mode.as_str(); 5]);
        assert_eq!(modes(layer, WRITING).await, [mode.as_str(); 7]);
    }
}

#[tokio::test(start_paused = true)]
async fn reads_can_be_turned_off_in_one_call_whatever_the_mode() {
    let (_store, _locks, layer) = locking();
    let layer = layer.safe_methods(None);
    assert_eq!(modes(layer.clone(), SAFE).await, ["none"; 5]);
    assert_eq!(modes(layer.clone(), WRITING).await, ["write"; 7]);
    let fair = layer.mode(LockMode::Fair);
    assert_eq!(modes(fair.clone(), SAFE).await, ["none"; 5]);
    assert_eq!(modes(fair, WRITING).await, ["fair"; 7]);
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
