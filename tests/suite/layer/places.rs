//! Every place where a layer can be added.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, get, put};
use bytes::Bytes;
use http::header::ACCESS_CONTROL_REQUEST_METHOD;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_distributed_lock::IdempotencyLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;

use super::{describe, locking, orders, request, send, text};

async fn locked_as(app: Router) -> String {
    let response = send(&app, request("PUT", "/orders/1")).await;
    assert_eq!(response.status(), 200);
    text(response).await
}

#[tokio::test]
async fn a_layer_locks_in_a_router_a_route_a_method_and_a_handler() {
    let (_store, _locks, layer) = locking();
    let key = "write /orders/%7Bid%7D:1";
    let route = |method: MethodRouter| Router::new().route("/orders/{id}", method);
    for app in [
        orders().layer(layer.clone()),
        orders().route_layer(layer.clone()),
        route(put(describe).layer(layer.clone())),
        route(put(describe).route_layer(layer.clone())),
        route(put(describe.layer(layer.clone()))),
        Router::new().merge(orders()).layer(layer.clone()),
        orders().layer(ServiceBuilder::new().layer(layer.clone())),
    ] {
        assert_eq!(locked_as(app).await, key);
    }
}

/// The documented order. Layers that make a response of their own need a default for its body.
#[tokio::test]
async fn one_service_builder_takes_cors_and_a_time_out_around_both_layers() {
    let (_store, locks, layer) = locking();
    let app = orders().layer(
        ServiceBuilder::new()
            .layer(CorsLayer::permissive())
            .layer(TimeoutLayer::with_status_code(
                StatusCode::REQUEST_TIMEOUT,
                Duration::from_secs(60),
            ))
            .layer(layer)
            .layer(IdempotencyLayer::new(locks).shared()),
    );
    assert_eq!(locked_as(app.clone()).await, "write /orders/%7Bid%7D:1");
    let mut preflight = request("OPTIONS", "/orders/1");
    let asks = HeaderValue::from_static("PUT");
    let headers = preflight.headers_mut();
    headers.insert(ACCESS_CONTROL_REQUEST_METHOD, asks);
    let response = send(&app, preflight).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "");
}

#[tokio::test]
async fn a_layer_around_a_whole_router_locks_the_path() {
    let (_store, _locks, layer) = locking();
    let service = ServiceBuilder::new().layer(layer).service(orders());
    let response = service
        .oneshot(request("PUT", "/orders/%31"))
        .await
        .unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "write path:/orders/1");
}

#[tokio::test]
async fn without_axum_a_body_needs_neither_a_default_nor_a_conversion() {
    struct Upload;
    let (store, _locks, layer) = locking();
    let service = ServiceBuilder::new()
        .layer(layer.stream_body())
        .service(service_fn(async |_: Request<Upload>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("fine")))
        }));
    let request = Request::post("/a").body(Upload).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "fine");
    assert_eq!(store.asked(), 1);
}

#[tokio::test]
async fn a_method_that_no_route_takes_is_locked_by_a_router_and_not_by_a_method() {
    let (store, _locks, layer) = locking();
    let route = || Router::new().route("/orders/{id}", get(describe));
    let not_locked = Router::new().route("/orders/{id}", get(describe).route_layer(layer.clone()));
    let refused = send(&not_locked, request("PUT", "/orders/1")).await;
    assert_eq!((refused.status().as_u16(), store.asked()), (405, 0));
    let locked = send(&route().layer(layer), request("PUT", "/orders/1")).await;
    assert_eq!((locked.status().as_u16(), store.asked()), (405, 1));
}
