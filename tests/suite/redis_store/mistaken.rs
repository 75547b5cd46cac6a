//! Stores that are configured for another kind of server.

use std::error::Error;
use std::time::Duration;

use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::store::redis::RedisStoreBuilder;

use super::*;

async fn refusal(builder: RedisStoreBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
    error.source().unwrap().to_string()
}

/// The address of a server, for a user with only the documented rights.
async fn restricted(server: &RedisServer) -> String {
    server.user("locks", &RedisStore::acl_rules([""])).await
}

#[tokio::test]
async fn what_is_no_address_is_said_to_be_none() {
    for (address, shown) in [
        ("127.0.0.1:6379", "`127.0.0.1:6379`"),
        ("", "``"),
        ("redis://", "`redis://`"),
        ("http://me:secret@host", "`http://…@host`"),
        ("redis://:secret/b@127.0.0.1", "`redis://…@127.0.0.1`"),
        ("me:secret@host:6379", "`…@host:6379`"),
        ("redis://me:secret?x@host:6379", "`redis://…`"),
        ("redis://me:secret#x@host:6379/0", "`redis://…`"),
        ("redis://me:secret", "`redis://me:…`"),
        ("redis://me:secret:6379", "`redis://me:…`"),
        ("redis://[::1]:6379/zero", "`redis://[::1]:6379/zero`"),
        (
            "redis://host:6379/zero?user=me&pass=secret",
            "`redis://host:6379/zero`",
        ),
    ] {
        let text = refusal(RedisStore::builder(address)).await;
        assert!(
            text.contains(shown) && text.contains("redis://user"),
            "{text}"
        );
        assert!(!text.contains("secret"), "{text}");
    }
    // What a program has at hand is an address.
    let address = String::from("redis://127.0.0.1:1");
    assert!(RedisStore::connect(&address).await.is_err());
}

/// A copy of an attempt could arrive when its withdrawal is forgotten.
#[tokio::test]
async fn a_response_timeout_beyond_the_memory_of_withdrawals_is_refused() {
    let builder = RedisStore::builder("redis://127.0.0.1:1");
    let text = refusal(builder.response_timeout(Duration::from_secs(61))).await;
    assert!(text.contains("at most 60 seconds"), "{text}");
}

#[tokio::test]
async fn a_replica_is_refused_when_connecting() {
    let master = RedisServer::start().await;
    let leader = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::builder().config("replicaof", &leader);
    let replica = replica.start().await;
    for address in [replica.url(), restricted(&replica).await] {
        let text = refusal(RedisStore::builder(address)).await;
        assert!(
            text.contains("replica") && text.contains("RedisStore::sentinel"),
            "{text}"
        );
    }
    let promote = ["REPLICAOF", "NO", "ONE"];
    let _: redis::Value = replica.ask(&promote).await;
    RedisStore::connect(replica.url()).await.unwrap();
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused_when_connecting() {
    let node = RedisServer::builder().cluster().start().await;
    for address in [node.url(), restricted(&node).await] {
        let text = refusal(RedisStore::builder(address)).await;
        assert!(text.contains("RedisStore::cluster"), "{text}");
    }
    // A store that connects later does not ask it for a lock either.
    let store = RedisStore::builder(node.url()).connect_lazy().unwrap();
    let error = store
        .acquire(&attempt("k", LockMode::Reentrant))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
}

#[tokio::test]
async fn a_sentinel_is_refused_when_connecting() {
    let sentinel = RedisServer::builder().sentinel().start().await;
    let text = refusal(RedisStore::builder(sentinel.url())).await;
    assert!(text.contains("RedisStore::sentinel"), "{text}");
}

/// Only RESP3 separates messages from answers.
#[tokio::test]
async fn a_server_without_hello_grants_locks_and_has_no_wake_ups() {
    let server = RedisServer::builder().config("rename-command", "HELLO \"\"");
    let server = server.start().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    let waiter = attempt("k", LockMode::Reentrant);
    let error = store.subscribe(&waiter).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
    assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
}
