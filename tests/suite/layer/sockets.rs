//! Clients that disconnect, over real sockets.
//!
//! While a request waits or is served, the server notices a disconnected client only by reading from its socket.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower_distributed_lock::{DistributedLockLayer, LockClient, LockGuard, LockMode, key};
use tower_http::catch_panic::CatchPanicLayer;

use super::locking;
use super::store::TestStore;
use crate::support::eventually;

mod unseen;

/// A disconnect that is noticed takes milliseconds; one that is not takes the whole wait.
pub(super) const AT_ONCE: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(600);

/// Long enough for any immediate effect.
const A_WHILE: Duration = Duration::from_millis(300);

pub(super) fn patient() -> (TestStore, LockClient, DistributedLockLayer) {
    let (store, locks, layer) = locking();
    let layer = layer.key(key::path()).mode(LockMode::Reentrant).wait(WAIT);
    (store, locks, layer)
}

/// Handlers that never end.
fn endless() -> Router {
    Router::new().route("/orders/{id}", any(std::future::pending::<()>))
}

pub(super) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A guard of another client, so that a request waits.
pub(super) async fn elsewhere(store: &TestStore) -> LockGuard {
    let others = LockClient::new(store.clone());
    others.lock("path:/orders/1").await.unwrap()
}

pub(super) async fn elsewhere_if(taken: bool, store: &TestStore) -> Option<LockGuard> {
    match taken {
        true => Some(elsewhere(store).await),
        false => None,
    }
}

pub(super) async fn is_asked(locks: &LockClient) {
    eventually("the lock is asked for", AT_ONCE, async || {
        locks.keys_in_use() == 1
    })
    .await;
}

pub(super) async fn is_given_up(locks: &LockClient) {
    eventually("the lock is given up", AT_ONCE, async || {
        locks.keys_in_use() == 0
    })
    .await;
}

pub(super) async fn http1(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

pub(super) async fn http2(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

pub(super) fn put_order(address: SocketAddr) -> Request<()> {
    let uri = format!("http://{address}/orders/1");
    Request::put(uri).body(()).unwrap()
}

pub(super) const PUT: &str = "PUT /orders/1 HTTP/1.1\r\nhost: test\r\n\r\n";

#[tokio::test]
async fn http1_closed_while_the_handler_runs_or_the_request_waits_releases() {
    for waiting in [false, true] {
        let (store, locks, layer) = patient();
        let address = serve(endless().layer(layer)).await;
        let held = elsewhere_if(waiting, &store).await;
        let client = http1(address, PUT).await;
        is_asked(&locks).await;
        drop(client);
        is_given_up(&locks).await;
        drop(held);
        eventually("nothing is left", AT_ONCE, async || store.is_free()).await;
    }
}

#[tokio::test]
async fn http1_that_is_half_closed_counts_as_closed() {
    let (_store, locks, layer) = patient();
    let address = serve(endless().layer(layer)).await;
    let mut client = http1(address, PUT).await;
    is_asked(&locks).await;
    client.shutdown().await.unwrap();
    is_given_up(&locks).await;
}

/// More than the server reads ahead.
async fn large_upload(address: SocketAddr) -> TcpStream {
    let length = 8 << 20;
    let mut client = http1(
        address,
        &format!("PUT /orders/1 HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n"),
    )
    .await;
    let chunk = vec![b'x'; 64 << 10];
    // Writes until the server reads no more.
    let _ = tokio::time::timeout(A_WHILE, async {
        for _ in 0..length / chunk.len() {
            client.write_all(&chunk).await.unwrap();
        }
    })
    .await;
    client
}

#[tokio::test]
async fn http1_closed_with_a_large_unread_body_is_noticed_only_if_the_body_is_buffered() {
    let (store, locks, layer) = patient();
    let held = elsewhere(&store).await;
    let address =
        serve(endless().layer(layer.clone().stream_body().wait(Duration::from_secs(3)))).await;
    let client = large_upload(address).await;
    is_asked(&locks).await;
    drop(client);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(
        locks.keys_in_use(),
        1,
        "if this is noticed now, tell the docs of `wait`"
    );
    is_given_up(&locks).await;

    let address = serve(
        endless()
            .layer(layer)
            .layer(axum::extract::DefaultBodyLimit::max(16 << 20)),
    )
    .await;
    let client = large_upload(address).await;
    is_asked(&locks).await;
    drop(client);
    is_given_up(&locks).await;
    drop(held);
}

#[tokio::test]
async fn http2_reset_while_the_handler_runs_or_the_request_waits_releases() {
    for waiting in [false, true] {
        let (store, locks, layer) = patient();
        let address = serve(endless().layer(layer)).await;
        let held = elsewhere_if(waiting, &store).await;
        let mut client = http2(address).await;
        let (_response, mut stream) = client.send_request(put_order(address), true).unwrap();
        is_asked(&locks).await;
        stream.send_reset(Reason::CANCEL);
        is_given_up(&locks).await;
        drop(held);
        eventually("nothing is left", AT_ONCE, async || store.is_free()).await;
    }
}

#[tokio::test]
async fn http2_closed_with_requests_that_run_and_wait_releases() {
    let (store, locks, layer) = patient();
    let address = serve(endless().layer(layer)).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(client.send_request(put_order(address), true).unwrap());
    }
    is_asked(&locks).await;
    connection.abort();
    is_given_up(&locks).await;
    eventually("nothing is left", AT_ONCE, async || store.is_free()).await;
}

#[tokio::test]
async fn a_panic_releases_whether_or_not_it_is_caught_outside() {
    for caught in [false, true] {
        let (store, locks, layer) = patient();
        let mut app = Router::new()
            .route("/orders/{id}", any(async || -> () { panic!("on purpose") }))
            .layer(layer);
        if caught {
            app = app.layer(CatchPanicLayer::new());
        }
        let address = serve(app).await;
        let mut client = http1(address, PUT).await;
        let mut answer = String::new();
        client.set_nodelay(true).unwrap();
        if caught {
            let mut head = [0; 12];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 500");
        } else {
            // The connection ends with its task.
            let _ = client.read_to_string(&mut answer).await;
            assert_eq!(answer, "");
        }
        eventually("nothing is left", AT_ONCE, async || store.is_free()).await;
        assert_eq!(locks.keys_in_use(), 0);
    }
}

#[tokio::test]
async fn shutdown_answers_waiters_and_releases_holds() {
    let (store, locks, layer) = patient();
    let app = endless().layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(async move { server.await });
    let mut serving = http1(address, PUT).await;
    is_asked(&locks).await;
    let mut waiting = http1(address, PUT).await;
    tokio::time::sleep(A_WHILE).await;

    stop.send(()).unwrap();
    locks.shutdown(AT_ONCE).await.unwrap();
    assert!(store.is_free());
    for (client, status) in [(&mut serving, "500"), (&mut waiting, "503")] {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
    let stopped = tokio::time::timeout(AT_ONCE, server).await;
    stopped
        .expect("no connection is left to wait for")
        .unwrap()
        .unwrap();
}
