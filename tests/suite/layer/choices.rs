//! Tenants, predicates, and what a response says of the lock.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::request::Parts;
use tower::ServiceBuilder;
use tower_distributed_lock::{IdempotencyLayer, LockMode, ReleaseOn, Resource, key};

use super::{locking, orders, put, request, send, slow_orders, text};

const ORDERS: Resource = Resource::new("lock:order");

/// The tenant that the authentication has found.
#[derive(Clone)]
struct Tenant(&'static str);

fn tenant(parts: &Parts) -> Option<String> {
    let tenant = parts.extensions.get::<Tenant>();
    tenant.map(|tenant| tenant.0.to_owned())
}

#[tokio::test(start_paused = true)]
async fn tenants_lock_things_of_their_own_and_a_job_finds_them() {
    let (_store, locks, layer) = locking();
    let layer = layer
        .key(key::param(ORDERS, "id"))
        .tenant(tenant)
        .wait(Duration::ZERO);
    let app = orders().layer(layer);
    let of = |tenant| {
        let mut request = request("PUT", "/orders/42");
        request.extensions_mut().insert(Tenant(tenant));
        request
    };
    let locked = text(send(&app, of("acme")).await).await;
    assert_eq!(locked, "write lock:order:42:@acme");
    assert_eq!(
        text(put(&app, "/orders/42").await).await,
        "write lock:order:42"
    );

    let job = locks.lock(ORDERS.id(42).tenant("acme")).await.unwrap();
    assert_eq!(send(&app, of("acme")).await.status(), 423);
    assert_eq!(send(&app, of("umbrella")).await.status(), 200);
    // Names of tenants do not leave their place.
    assert_eq!(send(&app, of("x:@acme")).await.status(), 200);
    job.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_that_a_predicate_leaves_out_pass_without_a_lock() {
    let (store, _locks, layer) = locking();
    let app = orders().layer(layer.when(|parts| parts.uri.path() != "/orders/1"));
    assert_eq!(text(put(&app, "/orders/1").await).await, "unlocked");
    assert_eq!(store.asked(), 0);
    assert!(
        text(put(&app, "/orders/2").await)
            .await
            .starts_with("write ")
    );

    let (_store, locks, _) = locking();
    let once = IdempotencyLayer::new(locks).shared();
    let once = once.when(|parts| parts.uri.path() != "/orders/1");
    let app = Router::new()
        .route("/orders/{id}", any(async || "done"))
        .layer(once);
    for (path, replayed) in [("/orders/1", false), ("/orders/2", true)] {
        for _ in 0..2 {
            let mut request = request("POST", path);
            let headers = request.headers_mut();
            headers.insert("idempotency-key", "k".parse().unwrap());
            let response = send(&app, request).await;
            let seen = response.headers().contains_key("idempotent-replayed");
            assert!(!seen || replayed, "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_says_how_long_its_lock_took_if_that_is_asked_for() {
    let (_store, locks, layer) = locking();
    let layer = layer.key(key::path());
    let silent = put(&slow_orders().layer(layer.clone()), "/orders/1").await;
    assert!(!silent.headers().contains_key("server-timing"));

    let timed = layer.server_timing();
    let app = slow_orders().layer(timed.clone());
    let held = locks
        .lock("path:/orders/1")
        .mode(LockMode::Write)
        .await
        .unwrap();
    let waiting = tokio::spawn(async move { put(&app, "/orders/1").await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    held.release().await.unwrap();
    let response = waiting.await.unwrap();
    let timing = response.headers()["server-timing"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(timing, "lock-wait;dur=500.000, lock-hold;dur=1000.000");

    let app = slow_orders().layer(timed.release_on(ReleaseOn::BodyEnd));
    let response = put(&app, "/orders/2").await;
    assert_eq!(response.headers()["server-timing"], "lock-wait;dur=0.000");
}

#[tokio::test(start_paused = true)]
async fn a_service_builder_takes_the_layer_in_one_line() {
    let (store, _locks, layer) = locking();
    let serve = async |_: http::Request<String>| {
        Ok::<_, std::convert::Infallible>(http::Response::new("done".to_owned()))
    };
    let service = ServiceBuilder::new()
        .layer(layer.key(key::path()).stream_body())
        .service(tower::service_fn(serve));
    let request = http::Request::put("/orders/1").body(String::new()).unwrap();
    let response = tower::ServiceExt::oneshot(service, request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(store.asked(), 1);
}
