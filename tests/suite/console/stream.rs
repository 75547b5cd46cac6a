//! The stream of events.

use tower_distributed_lock::RedisStore;
use tower_distributed_lock_console as console;

use tower::ServiceExt;

use super::*;
use crate::support::{Proxy, RedisServer};

/// Reads events until one has this name; returns its data.
async fn next(stream: &mut reqwest::Response, name: &str) -> Value {
    let mut text = String::new();
    let reading = async {
        loop {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some((event, rest)) = text.split_once("\n\n") {
                let field = |field: &str| {
                    let mut lines = event.lines();
                    lines.find_map(|line| line.strip_prefix(field).map(str::to_owned))
                };
                if field("event: ").as_deref() == Some(name) {
                    return serde_json::from_str(&field("data: ").unwrap()).unwrap();
                }
                text = rest.to_owned();
            }
        }
    };
    tokio::time::timeout(SOON, reading).await.expect("in time")
}

#[tokio::test]
async fn a_lock_appears_on_an_open_stream_and_goes() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let mut stream = page.get("/api/live?key=k").await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.headers()["x-accel-buffering"], "no");
    assert_eq!(next(&mut stream, "keys").await["keys_in_use"], 0);
    let guard = locks.lock("k").await.unwrap();
    while next(&mut stream, "keys").await["keys_in_use"] != 1 {}
    while next(&mut stream, "key").await["holds"][0]["mode"] != "reentrant" {}
    guard.release().await.unwrap();
    while next(&mut stream, "keys").await["keys_in_use"] != 0 {}
}

#[tokio::test]
async fn a_stream_goes_on_while_the_store_hangs() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    // A client that waits for as long as the store hangs.
    let store = RedisStore::builder(proxy.url()).response_timeout(Duration::from_secs(60));
    let locks = LockClient::new(store.connect().await.unwrap());
    let page = Page::serve(console::router(&locks)).await;
    let other = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let _elsewhere = other.lock("elsewhere").await.unwrap();
    let _waiter = wait(locks.lock("elsewhere"));
    let guard = locks.lock("k").await.unwrap();
    let mut stream = page.get("/api/live?key=k").await;
    while next(&mut stream, "keys").await["keys_in_use"] != 2 {}
    while !next(&mut stream, "key").await["store"]["error"].is_null() {}

    proxy.replies.hold();
    let mut stream = page.get("/api/live?key=k").await;
    for _ in 0..2 {
        let key = next(&mut stream, "key").await;
        let error = key["store"]["error"].as_str().unwrap();
        assert!(error.contains("has not answered within"), "{key}");
        // What this process knows is shown.
        assert_eq!(key["holds"][0]["mode"], "reentrant", "{key}");
        assert_eq!(next(&mut stream, "keys").await["keys_in_use"], 2);
    }
    let mut fresh = page.get("/api/live").await;
    assert!(next(&mut fresh, "store").await["audit"].is_object());

    proxy.replies.release();
    let mut stream = page.get("/api/live?key=k").await;
    while !next(&mut stream, "key").await["store"]["error"].is_null() {}
    guard.release().await.unwrap();
}

#[tokio::test]
async fn so_many_streams_are_open_at_a_time_and_no_more() {
    let page = Page::serve(console::router(&locks())).await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        let stream = page.get("/api/live").await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    assert_eq!(page.get("/api/live").await.status(), 503);
    drop(streams.pop());
    eventually("a place is free again", SOON, async || {
        page.get("/api/live").await.status() == 200
    })
    .await;
}

/// A connection may stay open without being read.
#[tokio::test(start_paused = true)]
async fn streams_that_are_not_read_give_their_places_back() {
    let console = console::router(&locks());
    let open = async || {
        let request = http::Request::get("/api/live").body(axum::body::Body::empty());
        console.clone().oneshot(request.unwrap()).await.unwrap()
    };
    let mut unread = Vec::new();
    for _ in 0..32 {
        unread.push(open().await);
    }
    assert_eq!(open().await.status(), 503);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(open().await.status(), 200);
    drop(unread);
}

#[tokio::test]
async fn streams_end_with_the_client() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let mut stream = page.get("/api/live").await;
    next(&mut stream, "store").await;
    locks.shutdown(SOON).await.unwrap();
    let ended = async { while let Some(_chunk) = stream.chunk().await.unwrap() {} };
    tokio::time::timeout(SOON, ended).await.expect("it ends");
}
