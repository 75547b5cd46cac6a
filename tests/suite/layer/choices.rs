//! Tenants, waits, and what a response says of the lock.

use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower_distributed_lock::layer::{ConfirmedBy, LockTiming};
use tower_distributed_lock::{LockMode, ReleaseOn, Resource, key};
use tracing::Level;

use super::{locking, orders, problem, put, request, send, slow_orders, text};
use crate::support::Log;

const ORDERS: Resource = Resource::new("lock:order");

/// The tenant that the authentication has found.
#[derive(Clone)]
struct Tenant(&'static str);

impl AsRef<str> for Tenant {
    fn as_ref(&self) -> &str {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn tenants_lock_things_of_their_own_and_a_job_finds_them() {
    let (_store, locks, layer) = locking();
    let layer = layer
        .key(key::param(ORDERS, "id"))
        .tenant_from::<Tenant>()
        .wait(Duration::ZERO);
    let app = orders().layer(layer.clone());
    let of = |tenant| {
        let mut request = request("PUT", "/orders/42");
        request.extensions_mut().insert(Tenant(tenant));
        request
    };
    let locked = text(send(&app, of("acme")).await).await;
    assert_eq!(locked, "write lock:order:42:@acme");
    let anonymous = orders().layer(layer.anonymous());
    assert_eq!(
        text(put(&anonymous, "/orders/42").await).await,
        "write lock:order:42"
    );

    let job = locks.lock(ORDERS.id(42).tenant("acme")).await.unwrap();
    assert_eq!(send(&app, of("acme")).await.status(), 423);
    assert_eq!(send(&app, of("umbrella")).await.status(), 200);
    // Names of tenants do not leave their place.
    assert_eq!(send(&app, of("x:@acme")).await.status(), 200);
    job.release().await.unwrap();
}

/// The authentication is on the wrong side of the layer: its tenants would lock each other's things.
#[tokio::test(start_paused = true)]
async fn a_request_without_its_tenant_is_an_error_of_the_program_and_locks_nothing() {
    let (log, _guard) = Log::at(Level::ERROR);
    let (store, _locks, layer) = locking();
    let app = orders().layer(layer.tenant_from::<Tenant>());
    let (status, problem) = problem(put(&app, "/orders/42").await).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
    assert_eq!(store.asked(), 0);
    assert!(log.text().contains("tenant"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_response_says_how_long_its_lock_took() {
    let (_store, locks, layer) = locking();
    let layer = layer.key(key::path());
    let app = slow_orders().layer(layer.clone());
    let held = locks
        .lock("path:/orders/1")
        .mode(LockMode::Write)
        .await
        .unwrap();
    let waiting = tokio::spawn(async move { put(&app, "/orders/1").await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    held.release().await.unwrap();
    let response = waiting.await.unwrap();
    let timing = *response.extensions().get::<LockTiming>().unwrap();
    assert_eq!(timing.waited(), Duration::from_millis(500));
    assert_eq!(timing.held(), Some(Duration::from_secs(1)));
    assert_eq!(timing.confirmed_by(), Some(ConfirmedBy::Store));

    let app = slow_orders().layer(layer.release_on(ReleaseOn::BodyEnd));
    let response = put(&app, "/orders/2").await;
    let timing = *response.extensions().get::<LockTiming>().unwrap();
    assert_eq!(timing.waited(), Duration::ZERO);
    assert_eq!((timing.held(), timing.confirmed_by()), (None, None));
}

/// The inner lock is held within the outer one.
#[tokio::test(start_paused = true)]
async fn of_two_layers_a_response_says_the_sum_of_the_waits_and_the_longest_hold() {
    let (_store, locks, layer) = locking();
    let inner = layer.clone().key(key::path());
    let outer = layer.key(key::header("x-order"));
    let app = slow_orders().layer(inner).layer(outer);
    let held = locks.lock("path:/orders/1").mode(LockMode::Write);
    let held = held.await.unwrap();
    let waiting = tokio::spawn(async move {
        let mut request = request("PUT", "/orders/1");
        let headers = request.headers_mut();
        headers.insert("x-order", "1".parse().unwrap());
        send(&app, request).await
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    held.release().await.unwrap();
    let response = waiting.await.unwrap();
    let timing = response.extensions().get::<LockTiming>().unwrap();
    assert_eq!(timing.waited(), Duration::from_millis(500));
    assert_eq!(timing.held(), Some(Duration::from_millis(1500)));
}

#[tokio::test(start_paused = true)]
async fn each_request_may_have_a_wait_of_its_own() {
    let (_store, locks, layer) = locking();
    let layer = layer.key(key::path()).wait(|parts: &Parts| {
        let seconds = parts.headers.get("x-wait").unwrap().to_str().unwrap();
        Duration::from_secs(seconds.parse().unwrap())
    });
    let app = orders().layer(layer);
    let held = locks.lock("path:/orders/1").mode(LockMode::Write);
    let _held = held.await.unwrap();
    for seconds in [1, 7] {
        let mut request = request("PUT", "/orders/1");
        request.headers_mut().insert("x-wait", seconds.into());
        let began = Instant::now();
        assert_eq!(send(&app, request).await.status(), 423);
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
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
