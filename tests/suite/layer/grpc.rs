//! Around a tonic service: locks by message, and refusals as gRPC statuses.

use std::time::Duration;

use http::request::Parts;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower_distributed_lock::{DistributedLockLayer, LockMode, OnCancel, Rejection, ReleaseOn, key};

use super::locking;
use super::store::TestStore;

/// Trailers only: the status is in the head, as gRPC requires.
fn status(rejection: &Rejection, _: &Parts) -> http::Response<tonic::body::Body> {
    let code = Code::from_i32(rejection.kind().grpc_code());
    Status::new(code, rejection.kind().as_str()).into_http()
}

async fn health(layer: DistributedLockLayer) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, service) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

fn by_method_name() -> (TestStore, DistributedLockLayer) {
    let (store, _locks, layer) = locking();
    // Every call is a POST.
    let layer = layer
        .key(key::path())
        .mode(LockMode::Reentrant)
        .rejection(status);
    (store, layer)
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
