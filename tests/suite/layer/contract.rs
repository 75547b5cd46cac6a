//! Tower's contract for services and layers.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::limit::ConcurrencyLimitLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock;

use super::{locking, request, settle};

type Mock = mock::Mock<Request<&'static str>, Response<Full<Bytes>>>;

fn get(path: &str) -> Request<&'static str> {
    Request::put(path).body("payload").unwrap()
}

fn ok() -> Response<Full<Bytes>> {
    Response::new(Full::from("fine"))
}

#[tokio::test(start_paused = true)]
async fn a_layer_is_ready_although_the_service_inside_is_not() {
    let (store, _locks, layer) = locking();
    let (inner, mut handle): (Mock, _) = mock::pair();
    handle.allow(0);
    let mut service = mock::Spawn::new(layer.stream_body().layer(inner));

    assert!(matches!(
        service.poll_ready::<Request<&str>>(),
        Poll::Ready(Ok(()))
    ));
    let mut response = tokio_test::task::spawn(service.call(get("/a")));
    assert!(response.poll().is_pending());
    assert_eq!(
        store.asked(),
        1,
        "the lock is asked for while the service inside is busy"
    );
    assert!(handle.poll_request().is_pending());

    handle.allow(1);
    assert!(response.is_woken());
    assert!(response.poll().is_pending());
    let (inside, answer) = handle.next_request().await.unwrap();
    assert_eq!(inside.uri(), "/a");
    assert_eq!(inside.into_body(), "payload");
    answer.send_response(ok());
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    assert!(store.is_free());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acquired_before_the_first_poll() {
    let (store, locks, layer) = locking();
    let mut service = layer
        .stream_body()
        .layer(service_fn(async |_: Request<&str>| {
            Ok::<_, Infallible>(ok())
        }));
    let never_polled = service.call(get("/a"));
    settle().await;
    assert_eq!(store.asked(), 0);
    assert_eq!(locks.keys_in_use(), 0);
    drop(never_polled);
    settle().await;
    assert_eq!(store.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_occupies_none_of_the_capacity_inside() {
    let (_store, locks, layer) = locking();
    let key = "path:/a";
    let elsewhere = locks
        .lock(key)
        .mode(tower_distributed_lock::LockMode::Write);
    let elsewhere = elsewhere.await.unwrap();
    let service = ServiceBuilder::new()
        .layer(layer.stream_body())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(service_fn(async |_: Request<&str>| {
            Ok::<_, Infallible>(ok())
        }));

    let waiting = tokio::spawn(service.clone().oneshot(get("/a")));
    settle().await;
    let other = service.oneshot(get("/b")).await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    assert!(!waiting.is_finished());
    elsewhere.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_never_called_before_it_is_ready() {
    let (_store, _locks, layer) = locking();
    let mut service = layer.stream_body().layer(
        ServiceBuilder::new()
            .layer(ConcurrencyLimitLayer::new(2))
            .service(service_fn(async |_: Request<&str>| {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok::<_, Infallible>(ok())
            })),
    );
    let mut responses = Vec::new();
    for path in ["/a", "/b", "/c", "/a", "/d"] {
        let ready: &mut _ = service.ready().await.unwrap();
        responses.push(tokio::spawn(ready.call(get(path))));
    }
    for response in responses {
        assert_eq!(response.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_service_inside_passes_and_releases() {
    let (store, _locks, layer) = locking();
    let (inner, mut handle): (Mock, _) = mock::pair();
    let service = layer.stream_body().layer(inner);
    let response = tokio::spawn(service.clone().oneshot(get("/a")));
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_error("it broke");
    let error: BoxError = response.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "it broke");
    assert!(store.is_free());

    handle.send_error("not ready, ever");
    let error = service.oneshot(get("/a")).await.unwrap_err();
    assert_eq!(error.to_string(), "not ready, ever");
    settle().await;
    assert!(store.is_free());
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_lock_is_a_response_and_never_an_error() {
    let (store, _locks, layer) = locking();
    store.unplug(true);
    let (inner, mut handle): (Mock, _) = mock::pair();
    let response = layer
        .stream_body()
        .layer(inner)
        .oneshot(get("/a"))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(matches!(
        handle.poll_request(),
        Poll::Ready(None) | Poll::Pending
    ));
}

#[tokio::test]
async fn service_and_future_can_be_sent_and_shared() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send + 'static>(_: &T) {}

    let (_store, _locks, layer) = locking();
    shared(&layer);
    let mut service = layer.layer(service_fn(async |_: Request<axum::body::Body>| {
        Ok::<_, Infallible>(ok())
    }));
    shared(&service);
    sent(&service.call(request("GET", "/a")));
}

/// What an extension counts, such as the users of a transaction, must not change because a layer may have to answer by itself.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_served_is_not_copied_for_a_refusal() {
    let (_store, _locks, layer) = locking();
    let seen = Arc::new(());
    let mut request = get("/a");
    request.extensions_mut().insert(seen.clone());
    let service = layer
        .stream_body()
        .rejection(|rejection| rejection.to_response())
        .layer(service_fn(async |request: Request<&'static str>| {
            let seen: &Arc<()> = request.extensions().get().expect("it was put there");
            assert_eq!(Arc::strong_count(seen), 2, "the test's own, and this one");
            Ok::<_, Infallible>(ok())
        }));
    assert_eq!(service.oneshot(request).await.unwrap().status(), 200);
}
