//! A plain hyper server and tower, without axum.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::ext::Protocol;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};
use tower_distributed_lock::layer::mode;
use tower_distributed_lock::{DistributedLockLayer, LockHandle};

use super::sockets::{
    AT_ONCE, PUT, elsewhere_if, http1, http2, is_asked, is_given_up, patient, put_order,
};
use crate::support::eventually;

async fn serve(layer: DistributedLockLayer, endless: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = move |request: Request<Incoming>| async move {
        if endless {
            std::future::pending::<()>().await;
        }
        let lock = LockHandle::of(request.extensions()).expect("it is locked");
        let body = match request.method() {
            // A tunnel has no body.
            &Method::CONNECT => Bytes::new(),
            _ => lock.key().to_string().into(),
        };
        let response = Response::builder().header("mode", lock.mode().as_str());
        Ok::<_, Infallible>(response.body(Full::new(body)).expect("valid"))
    };
    let service = ServiceBuilder::new()
        .layer(layer.stream_body())
        .service(service_fn(handler));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let mut server = auto::Builder::new(TokioExecutor::new());
                server.http2().enable_connect_protocol();
                server.serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    address
}

#[tokio::test]
async fn a_request_is_served_under_its_lock_with_http1_and_http2() {
    let (store, _locks, layer) = patient();
    let address = serve(layer, false).await;
    let mut client = http1(
        address,
        &PUT.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n"),
    )
    .await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("path:/orders/1"), "{answer}");

    let mut client = http2(address).await;
    let (response, _) = client.send_request(put_order(address), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "path:/orders/1");
    assert!(store.is_free());
    assert_eq!(store.asked(), 2);
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_request() {
    for waiting in [false, true] {
        let (store, locks, layer) = patient();
        let address = serve(layer, true).await;
        let held = elsewhere_if(waiting, &store).await;
        let client = http1(address, PUT).await;
        is_asked(&locks).await;
        drop(client);
        is_given_up(&locks).await;

        let mut client = http2(address).await;
        let (_response, mut stream) = client.send_request(put_order(address), true).unwrap();
        is_asked(&locks).await;
        stream.send_reset(h2::Reason::CANCEL);
        is_given_up(&locks).await;
        drop(held);
        eventually("nothing is left", AT_ONCE, async || store.is_free()).await;
    }
}

/// RFC 8441.
#[tokio::test]
async fn a_websocket_over_http_2_is_locked_as_one_over_http_1_is() {
    let (store, _locks, layer) = patient();
    let address = serve(layer.mode(mode::by_method()), false).await;
    let upgrade = "GET /orders/1 HTTP/1.1\r\nhost: test\r\nconnection: close, upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut answer = String::new();
    let mut client = http1(address, upgrade).await;
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("mode: read"), "{answer}");

    let mut client = http2(address).await;
    eventually("the server's settings are here", AT_ONCE, async || {
        client.is_extended_connect_protocol_enabled()
    })
    .await;
    let uri = format!("http://{address}/orders/1");
    let connect = Request::connect(uri).extension(Protocol::from_static("websocket"));
    let (response, _messages) = client
        .send_request(connect.body(()).unwrap(), false)
        .unwrap();
    assert_eq!(response.await.unwrap().headers()["mode"], "read");
    assert_eq!(store.asked(), 2);
}
