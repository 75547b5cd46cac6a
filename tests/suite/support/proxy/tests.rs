use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, AsyncTypedCommands, Client, RedisError};

use crate::support::{Ending, Proxy, RedisServer, eventually};

const LIMIT: Duration = Duration::from_secs(30);

async fn connect(proxy: &Proxy) -> Result<MultiplexedConnection, RedisError> {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LIMIT))
        .set_response_timeout(Some(LIMIT));
    let client = Client::open(proxy.url())?;
    client
        .get_multiplexed_async_connection_with_config(&patient)
        .await
}

async fn server_and_proxy() -> (RedisServer, Proxy, MultiplexedConnection) {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let redis = connect(&proxy).await.expect("a connection");
    (server, proxy, redis)
}

#[tokio::test]
async fn a_held_request_reaches_the_server_only_when_released() {
    let (server, proxy, mut redis) = server_and_proxy().await;
    proxy.requests.hold();
    let set = tokio::spawn(async move { redis.set("a", "1").await });
    let caught = proxy.requests.until_caught().await;
    assert_eq!(caught.held_connections, 1);
    assert_eq!(server.dump().await.len(), 0);

    proxy.requests.release();
    set.await.unwrap().unwrap();
    assert_eq!(server.dump().await.len(), 1);
    assert_eq!(proxy.requests.tally().passed, caught.passed + caught.held);
}

#[tokio::test]
async fn a_held_reply_belongs_to_a_request_that_was_executed() {
    let (server, proxy, mut redis) = server_and_proxy().await;
    proxy.replies.hold();
    let set = tokio::spawn(async move { redis.set("a", "1").await });
    let caught = proxy.replies.until_caught().await;
    assert_eq!(
        (caught.held, caught.held_connections),
        ("+OK\r\n".len() as u64, 1)
    );
    assert_eq!(server.dump().await.len(), 1);
    assert!(!set.is_finished());

    proxy.replies.release();
    set.await.unwrap().unwrap();
}

#[tokio::test]
async fn every_hold_counts_from_zero() {
    let (_server, proxy, mut redis) = server_and_proxy().await;
    for _ in 0..2 {
        proxy.replies.hold();
        let ping = redis.ping();
        let release = async {
            proxy.replies.until_caught().await;
            proxy.replies.release();
        };
        tokio::join!(ping, release).0.unwrap();
        let tally = proxy.replies.tally();
        assert_eq!(
            (tally.held, tally.held_connections),
            ("+PONG\r\n".len() as u64, 1)
        );
    }
}

#[tokio::test]
async fn a_cut_loses_what_was_held() {
    for ending in [Ending::Reset, Ending::Close] {
        let (server, proxy, mut redis) = server_and_proxy().await;
        proxy.requests.hold();
        let set = tokio::spawn(async move { redis.set("a", "1").await });
        proxy.requests.until_caught().await;
        assert_eq!(proxy.cut(ending).await, 1);
        assert_eq!(proxy.connections(), 0);
        assert!(set.await.unwrap().is_err());

        proxy.requests.release();
        let mut redis = connect(&proxy).await.unwrap();
        assert_eq!(redis.ping().await.unwrap(), "PONG");
        assert_eq!(proxy.accepted(), 2);
        assert_eq!(server.dump().await.len(), 0);
    }
}

#[tokio::test]
async fn a_cut_ends_the_connection_at_the_server_too() {
    let (server, proxy, _redis) = server_and_proxy().await;
    assert_eq!(server.client_list().await.len(), 1);
    proxy.cut(Ending::Reset).await;
    eventually("the server sees the reset", LIMIT, async || {
        server.client_list().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_is_seen_by_the_server() {
    let (server, proxy, redis) = server_and_proxy().await;
    drop(redis);
    eventually("the server sees the end", LIMIT, async || {
        server.client_list().await.is_empty()
    })
    .await;
    eventually("the proxy forgets it", LIMIT, async || {
        proxy.connections() == 0
    })
    .await;
}

#[tokio::test]
async fn a_half_closed_lane_leaves_the_other_one_open() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (server, proxy, _redis) = server_and_proxy().await;
    let address = proxy.url().replace("redis://", "");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    stream.read_exact(&mut [0; 7]).await.unwrap();

    proxy.replies.half_close();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    stream.write_all(b"SET a 1\r\n").await.unwrap();
    eventually("the request arrives", LIMIT, async || {
        server.dump().await.len() == 1
    })
    .await;
}

#[tokio::test]
async fn refusing_stops_new_connections_only() {
    let (_server, proxy, mut redis) = server_and_proxy().await;
    proxy.refuse().await;
    let error = connect(&proxy).await.unwrap_err();
    assert!(error.is_connection_refusal(), "{error}");
    assert_eq!(redis.ping().await.unwrap(), "PONG");

    proxy.accept().await;
    assert!(connect(&proxy).await.is_ok());
}

#[tokio::test]
async fn a_delay_is_paid_once_per_direction() {
    let (_server, proxy, mut redis) = server_and_proxy().await;
    proxy.delay(Duration::from_millis(40));
    let started = Instant::now();
    redis.ping().await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80));

    proxy.delay(Duration::ZERO);
    proxy.requests.delay(Duration::from_millis(40));
    let started = Instant::now();
    redis.ping().await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(40));
}

#[tokio::test]
async fn a_server_that_is_down_resets_what_the_proxy_accepted() {
    let (mut server, proxy, mut redis) = server_and_proxy().await;
    server.kill9();
    assert!(redis.ping().await.is_err());
    assert!(connect(&proxy).await.is_err());
    server.restart().await;
    assert!(connect(&proxy).await.is_ok());
}

#[tokio::test]
async fn megabytes_pass_unchanged() {
    let (_server, proxy, mut redis) = server_and_proxy().await;
    let text = "0123456789abcdef".repeat(1 << 18);
    redis.set("a", &text).await.unwrap();
    assert_eq!(redis.get("a").await.unwrap().as_ref(), Some(&text));
    assert!(proxy.requests.tally().passed > text.len() as u64);
}
