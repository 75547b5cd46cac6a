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

const READING: [&str; 3] = ["GET", "HEAD", "QUERY"];
/// They concern no resource: a preflight of CORS must not wait for one.
const PASSING: [&str; 3] = ["OPTIONS", "TRACE", "CONNECT"];
const WRITING: [&str; 6] = ["PUT", "POST", "PATCH", "DELETE", "PROPFIND", "get"];

#[tokio::test(start_paused = true)]
async fn three_methods_read_three_need_no_lock_and_the_others_write() {
    let (_store, _locks, layer) = locking();
    for layer in [layer.clone(), layer.mode(by_method())] {
        assert_eq!(modes(layer.clone(), READING).await, ["read"; 3]);
        assert_eq!(modes(layer.clone(), PASSING).await, ["none"; 3]);
        assert_eq!(modes(layer, WRITING).await, ["write"; 6]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_mode_is_for_every_method() {
    let (_store, _locks, layer) = locking();
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let layer = layer.clone().mode(mode);
        assert_eq!(modes(layer.clone(), READING).await, [mode.as_str(); 3]);
        assert_eq!(modes(layer.clone(), PASSING).await, [mode.as_str(); 3]);
        assert_eq!(modes(layer, WRITING).await, [mode.as_str(); 6]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_mode_of_safe_methods_is_set_in_one_call_whatever_the_mode() {
    let (_store, _locks, layer) = locking();
    for safe in [None, Some(LockMode::Read)] {
        let reading = safe.map_or("none", LockMode::as_str);
        for mode in [None, Some(LockMode::Write)] {
            let layer = match mode {
                Some(mode) => layer.clone().mode(mode),
                None => layer.clone(),
            };
            let layer = layer.safe_methods(safe);
            assert_eq!(modes(layer.clone(), READING).await, [reading; 3]);
            assert_eq!(modes(layer.clone(), PASSING).await, ["none"; 3]);
            assert_eq!(modes(layer, WRITING).await, ["write"; 6]);
        }
    }
    let closure = layer.mode(|_: &Parts| LockMode::Fair).safe_methods(None);
    assert_eq!(modes(closure.clone(), READING).await, ["none"; 3]);
    assert_eq!(modes(closure.clone(), PASSING).await, ["none"; 3]);
    assert_eq!(modes(closure, WRITING).await, ["fair"; 6]);
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
