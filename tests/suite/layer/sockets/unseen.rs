//! HTTP/1 clients whose disconnect the server does not notice, because there is unread data on the socket.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{A_WHILE, PUT, elsewhere, endless, http1, is_asked, is_given_up, patient, serve};

const EXPECTING: &str =
    "PUT /orders/1 HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";

const UNFINISHED: &str =
    "PUT /orders/1 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";

#[tokio::test]
async fn a_wait_ends_although_its_client_is_not_seen_to_disconnect() {
    let twice = PUT.repeat(2);
    let pipelined = twice.as_str();
    let (store, locks, layer) = patient();
    let layer = layer.wait(Duration::from_secs(2));
    let streamed = endless().layer(layer.clone().stream_body());
    let read = endless().layer(layer);
    for (head, app) in [
        (EXPECTING, &streamed),
        (UNFINISHED, &streamed),
        (pipelined, &streamed),
        (pipelined, &read),
    ] {
        let held = elsewhere(&store).await;
        let address = serve(app.clone()).await;
        let client = http1(address, head).await;
        is_asked(&locks).await;
        drop(client);
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(
            locks.keys_in_use(),
            1,
            "if this is noticed now, tell the docs of `wait`: {head}"
        );
        // The second of two pipelined requests waits after the first, and ends when its client has
        // disconnected.
        is_given_up(&locks).await;
        drop(held);
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_and_its_end_is_noticed() {
    let (store, locks, layer) = patient();
    let _held = elsewhere(&store).await;
    let address = serve(endless().layer(layer)).await;
    let mut client = http1(address, EXPECTING).await;
    let mut answer = [0; 25];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(locks.keys_in_use(), 0, "the body comes first");
    client.write_all(b"hello").await.unwrap();
    is_asked(&locks).await;
    drop(client);
    is_given_up(&locks).await;
}

#[tokio::test]
async fn an_unfinished_body_that_is_buffered_asks_for_no_lock() {
    let (store, locks, layer) = patient();
    let address = serve(endless().layer(layer)).await;
    let client = http1(address, UNFINISHED).await;
    tokio::time::sleep(A_WHILE).await;
    drop(client);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!((store.asked(), locks.keys_in_use()), (0, 0));

    let mut client = http1(address, UNFINISHED).await;
    client.write_all(b"0\r\n\r\n").await.unwrap();
    is_asked(&locks).await;
    drop(client);
    is_given_up(&locks).await;
}
