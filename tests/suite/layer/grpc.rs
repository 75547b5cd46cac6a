//! Around a tonic service: locks by message, and refusals as gRPC statuses.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::Request;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower_distributed_lock::{DistributedLockLayer, OnCancel, ReleaseOn, key};

use super::store::TestStore;
use super::uploads::dribbling;
use super::{locking, send};

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
            1 => layer.release_on(ReleaseOn::BodyEnd),
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

/// A client that streams may wait for an answer before it goes on. The program knows that, and no header says it: a stranger could
/// hold a lock with a slow body.
#[tokio::test(start_paused = true)]
async fn the_content_type_of_a_request_does_not_leave_its_body_unread() {
    let call = |content_type, body| {
        let request = Request::post("/chat.Chat/Talk").header("content-type", content_type);
        request.body(body).unwrap()
    };
    let routes = Router::new().route("/chat.Chat/Talk", any(async || "first"));
    for content_type in ["application/grpc", "application/grpc+proto", "text/plain"] {
        let (store, _locks, layer) = locking();
        let streamed = routes.clone().layer(layer.clone().stream_body());
        let answer = send(&streamed, call(content_type, dribbling("message")));
        let answer = timeout(Duration::from_secs(1), answer).await;
        assert_eq!(answer.expect("at once").status(), 200, "{content_type}");
        assert_eq!(store.asked(), 1);
        let read = routes.clone().layer(layer.clone());
        let answer = send(&read, call(content_type, dribbling("message"))).await;
        assert_eq!(answer.status(), 400, "{content_type}");
        assert_eq!(store.asked(), 1, "it locked nothing");
        let keyed = layer.key(key::json_field("lock:chat", "/id"));
        let keyed = routes.clone().layer(keyed);
        let answer = send(&keyed, call(content_type, r#"{"id":1}"#.into()));
        assert_eq!(answer.await.status(), 200, "{content_type}");
    }
}
