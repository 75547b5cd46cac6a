//! Around a tonic service: locks by message, and refusals as gRPC statuses.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, ServiceExt};
use tower_distributed_lock::{DistributedLockLayer, OnCancel, Rejection, ReleaseOn, key};
use tower_service::Service;
use tracing::Level;

use super::store::TestStore;
use super::uploads::dribbling;
use super::{locking, send};
use crate::support::{Log, eventually};

async fn health(layer: DistributedLockLayer<true>) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, service) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

fn by_method_name() -> (TestStore, DistributedLockLayer<true>) {
    let (store, locks, _layer) = locking();
    (store, DistributedLockLayer::grpc(locks))
}

#[tokio::test]
async fn a_call_is_served_under_its_lock() {
    for change in [0, 1, 2] {
        let (store, layer) = by_method_name();
        let mut client = health(match change {
            0 => layer,
            1 => layer.release_on(ReleaseOn::Head),
            _ => layer.on_cancel(OnCancel::RunToCompletion),
        })
        .await;
        for _ in 0..3 {
            client.check(HealthCheckRequest::default()).await.unwrap();
            assert!(store.is_free());
        }
        assert_eq!(store.asked(), 3);
    }
}

/// The service sends a status whenever it changes.
#[tokio::test]
async fn a_call_that_streams_holds_its_lock_until_its_stream_ends() {
    let (_store, layer) = by_method_name();
    let mut client = health(layer.wait(Duration::ZERO)).await;
    let watch = client.watch(HealthCheckRequest::default()).await;
    let mut watch = watch.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    let refused = client.watch(HealthCheckRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Aborted);
    drop(watch);
    eventually("the lock is free", Duration::from_secs(10), async || {
        client.watch(HealthCheckRequest::default()).await
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_a_grpc_status() {
    let (store, layer) = by_method_name();
    let locks = tower_distributed_lock::LockClient::new(store.clone());
    let held = locks
        .lock("path:/grpc.health.v1.Health/Check")
        .await
        .unwrap();
    let mut client = health(layer.wait(Duration::ZERO)).await;
    let mut refused = async || {
        client
            .check(HealthCheckRequest::default())
            .await
            .unwrap_err()
    };

    let contended = refused().await;
    assert_eq!(
        (contended.code(), contended.message()),
        (Code::Aborted, "lock-contended")
    );
    held.release().await.unwrap();
    store.unplug(true);
    let unavailable = refused().await;
    assert_eq!(
        (unavailable.code(), unavailable.message()),
        (Code::Unavailable, "lock-unavailable")
    );
}

/// Its response is a 200, which tells a layer further out nothing.
#[tokio::test(start_paused = true)]
async fn the_rejection_of_a_call_has_the_status_that_http_would_have() {
    let (store, layer) = by_method_name();
    store.unplug(true);
    let call = Request::post("/chat.v1.Chat/Talk").body(tonic::body::Body::empty());
    let service = layer.layer(Chat::<true>);
    let refused = service.oneshot(call.unwrap()).await.unwrap();
    let rejection = refused.extensions().get::<Rejection>().unwrap();
    assert_eq!(
        (refused.status().as_u16(), rejection.status().as_u16()),
        (200, 503)
    );
}

/// A service of tonic that answers a call without reading its messages; its proto file names a package, or not.
#[derive(Clone)]
struct Chat<const PACKAGE: bool>;

impl<const PACKAGE: bool> NamedService for Chat<PACKAGE> {
    const NAME: &'static str = if PACKAGE { "chat.v1.Chat" } else { "Chat" };
}

impl<const PACKAGE: bool> Service<Request<tonic::body::Body>> for Chat<PACKAGE> {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<tonic::body::Body>) -> Self::Future {
        ready(Ok(Status::ok("").into_http()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_messages_of_a_call_to_a_service_of_tonic_are_not_awaited() {
    for (routes, name) in [
        (Routes::new(Chat::<true>), "chat.v1.Chat"),
        (Routes::new(Chat::<false>), "Chat"),
    ] {
        let routes = routes.into_axum_router();
        for (app, prefix) in [
            (routes.clone(), ""),
            (Router::new().nest("/api", routes.clone()), "/api"),
            (Router::new().nest("/api/{tenant}", routes), "/api/apple"),
        ] {
            let (store, _locks, layer) = locking();
            let call = Request::post(format!("{prefix}/{name}/Talk"))
                .header("content-type", "application/grpc")
                .body(dribbling("message"));
            let app = app.layer(layer);
            let answer = timeout(Duration::from_secs(1), send(&app, call.unwrap())).await;
            let answer =
                answer.unwrap_or_else(|_| panic!("{prefix}/{name}: its messages are awaited"));
            assert_eq!(
                (answer.headers()["grpc-status"].as_bytes(), store.asked()),
                (&b"0"[..], 1)
            );
        }
    }
}

/// A client that streams may wait for an answer before it goes on. The route tells that, and not the request alone: a stranger could
/// hold a lock with a slow body.
#[tokio::test(start_paused = true)]
async fn the_messages_of_a_call_are_not_awaited_and_other_bodies_are_whatever_they_say() {
    let call = |route: &str, content_type, body| {
        let path = route.replace("{service}", "chat.Chat");
        let path = path.replace("{*rest}", "Talk").replace("{*path}", "Talk");
        let request = Request::post(path).header("content-type", content_type);
        request.body(body).unwrap()
    };
    for (route, content_type, left) in [
        ("/chat.Chat/{*rest}", "application/grpc", true),
        ("/chat.Chat/{*rest}", "application/grpc+proto", true),
        ("/chat.Chat/{*rest}", "text/plain", false),
        ("/chat.Chat/Talk", "application/grpc", false),
        ("/{service}/{*rest}", "application/grpc", false),
        ("/{*rest}", "application/grpc", false),
        // What comes before the rest is no name of a service.
        ("/v1.0/{*rest}", "application/grpc", false),
        ("/files/{*rest}", "application/grpc", false),
        ("/Chat/files/{*rest}", "application/grpc", false),
        ("/Chat/{*path}", "application/grpc", false),
        ("/.well-known/{*rest}", "application/grpc", false),
    ] {
        let (store, _locks, layer) = locking();
        let routes = Router::new().route(route, any(async || "first"));
        let streamed = routes.clone().layer(layer.clone().stream_body());
        let answer = send(&streamed, call(route, content_type, dribbling("message")));
        let answer = timeout(Duration::from_secs(1), answer).await;
        assert_eq!(answer.expect("at once").status(), 200, "{route}");
        let read = routes.clone().layer(layer.clone());
        let answer = send(&read, call(route, content_type, dribbling("message"))).await;
        let (status, asked) = if left { (200, 2) } else { (400, 1) };
        assert_eq!(
            (answer.status(), store.asked()),
            (status.try_into().unwrap(), asked),
            "{route} {content_type}"
        );
        if !left {
            let keyed = layer.key(key::json_field("lock:chat", "/id"));
            let keyed = routes.layer(keyed);
            let answer = send(&keyed, call(route, content_type, r#"{"id":1}"#.into()));
            assert_eq!(answer.await.status(), 200, "{route}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_messages_are_awaited_is_warned_of_once_per_route() {
    let (log, _guard) = Log::at(Level::WARN);
    let (_store, _locks, layer) = locking();
    let routes = ["/talks/{id}", "/calls/{id}"].into_iter();
    let app = routes.fold(Router::new(), |app, route| {
        app.route(route, any(async || ()))
    });
    let app = app.layer(layer);
    for path in ["/talks/1", "/talks/2", "/calls/1"] {
        for content_type in ["application/json", "application/grpc"] {
            let call = Request::post(path).header("content-type", content_type);
            let answer = send(&app, call.body("message".into()).unwrap()).await;
            assert_eq!(answer.status(), 200, "{path}");
        }
    }
    let text = log.text();
    assert_eq!(text.lines().count(), 2, "{text}");
    for route in ["/talks/{id}", "/calls/{id}"] {
        assert!(text.contains(&format!("route=\"{route}\"")), "{text}");
    }
    assert!(text.contains("call `stream_body`"), "{text}");
}
