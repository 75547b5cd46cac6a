//! The servers that tests start.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{AsyncTypedCommands, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn parallel_servers_do_not_share_anything() {
    let (one, two) = tokio::join!(RedisServer::start(), RedisServer::start());
    assert_ne!(one.port(), two.port());
    one.connection().await.set("a", "1").await.unwrap();
    assert_eq!(one.dump().await.len(), 1);
    assert_eq!(two.dump().await.len(), 0);
}

#[tokio::test]
async fn a_restart_keeps_the_port_and_forgets_the_data() {
    let mut server = RedisServer::start().await;
    let url = server.url();
    server.connection().await.set("a", "1").await.unwrap();
    server.restart().await;
    assert_eq!(server.url(), url);
    assert_eq!(server.dump().await.len(), 0);
}

#[tokio::test]
async fn an_append_only_file_outlives_sigkill() {
    let persistent = RedisServer::builder().config("appendonly", "yes");
    let mut server = persistent.config("appendfsync", "always").start().await;
    server.connection().await.set("a", "1").await.unwrap();
    server.kill9();
    let client = Client::open(server.url()).unwrap();
    assert!(client.get_multiplexed_async_connection().await.is_err());
    server.restart().await;
    assert_eq!(server.dump().await.len(), 1);
}

#[tokio::test]
async fn a_stopped_server_ends_in_order() {
    let mut server = RedisServer::start().await;
    server.stop().await;
    assert!(server.log().contains("bye bye"), "{}", server.log());
}

#[tokio::test]
async fn a_paused_server_is_silent_until_resumed() {
    let mut server = RedisServer::start().await;
    let mut redis = server.connection().await;
    server.pause();
    let ping = tokio::spawn(async move { redis.ping().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!ping.is_finished());
    server.resume();
    assert_eq!(ping.await.unwrap().unwrap(), "PONG");
}

#[tokio::test]
async fn the_address_carries_the_password() {
    let server = RedisServer::builder().password("secret").start().await;
    assert!(server.url().contains("secret"));
    for url in [server.url(), server.unix_url()] {
        let client = Client::open(url).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        assert_eq!(redis.ping().await.unwrap(), "PONG");
    }
    let stranger = Client::open(format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let refused = match stranger.get_multiplexed_async_connection().await {
        Ok(mut redis) => redis.ping().await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
}

#[tokio::test]
async fn a_cluster_node_starts() {
    let server = RedisServer::builder().cluster().start().await;
    let mut redis = server.connection().await;
    let info: String = redis::cmd("CLUSTER")
        .arg("INFO")
        .query_async(&mut redis)
        .await
        .unwrap();
    assert!(info.contains("cluster_slots_assigned:0"), "{info}");
}

#[tokio::test]
async fn listeners_and_clients_are_counted_without_the_observers() {
    let server = RedisServer::start().await;
    assert_eq!(server.client_list().await.len(), 0);
    assert_eq!(server.pubsub_channels().await, BTreeMap::new());

    let mut listener = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let shards = server.knows_shards().await;
    let shard: &[u8] = if shards {
        b"SSUBSCRIBE {shard}\r\n"
    } else {
        b""
    };
    let commands = [b"SUBSCRIBE wake\r\n", shard, b"PING\r\n"].concat();
    listener.write_all(&commands).await.unwrap();
    let mut replies = Vec::new();
    while !replies.ends_with(b"$4\r\npong\r\n$0\r\n\r\n") {
        listener.read_buf(&mut replies).await.unwrap();
    }
    let mut expected = BTreeMap::from([("wake".into(), 1)]);
    expected.extend(shards.then(|| ("{shard}".into(), 1)));
    assert_eq!(server.pubsub_channels().await, expected);
    let clients = server.client_list().await;
    assert_eq!(clients.len(), 1);
    assert_eq!(clients[0]["sub"], "1");

    drop(listener);
    eventually(
        "the listener is gone",
        Duration::from_secs(30),
        async || server.client_list().await.is_empty(),
    )
    .await;
    assert_eq!(server.pubsub_channels().await, BTreeMap::new());
}

#[tokio::test]
#[should_panic(expected = "apt-get install redis-server")]
async fn a_missing_binary_says_how_to_get_it() {
    RedisServer::builder()
        .binary("/nowhere/redis-server")
        .start()
        .await;
}

#[tokio::test]
#[should_panic(expected = "redis-server has ended (exit status: 1) instead of starting")]
async fn a_bad_configuration_fails_at_once() {
    RedisServer::builder()
        .config("no-such-setting", "yes")
        .start()
        .await;
}
