//! Stores that are configured for another kind of server.

use std::error::Error;

use tower_distributed_lock::{LockMode, LockStore, RedisStoreBuilder, Replicas};
use tracing::Level;

use super::*;
use crate::support::Log;

async fn refusal(builder: RedisStoreBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
    error.source().unwrap().to_string()
}

/// The address of a server, for a user with only the documented rights.
async fn restricted(server: &RedisServer) -> String {
    let rules = RedisStore::acl_rules([""]).to_string();
    let user = ["ACL", "SETUSER", "locks", "on", ">secret"];
    let words: Vec<_> = user.into_iter().chain(rules.split(' ')).collect();
    let _: redis::Value = server.ask(&words).await;
    format!("redis://locks:secret@127.0.0.1:{}", server.port())
}

#[tokio::test]
async fn what_is_no_address_is_said_to_be_none() {
    for address in ["127.0.0.1:6379", "", "redis://:a/b@127.0.0.1"] {
        let text = refusal(RedisStore::builder(address)).await;
        assert!(text.contains("an address cannot be read"), "{text}");
        assert!(!text.contains("a/b"), "{text}");
    }
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

fn pool(server: &RedisServer) -> deadpool_redis::Pool {
    let config = deadpool_redis::Config::from_url(server.url());
    config
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .unwrap()
}

/// The log of this thread during `work`.
async fn logged<T>(work: impl Future<Output = T>) -> (T, String) {
    let (log, _guard) = Log::at(Level::INFO);
    (work.await, log.text())
}

#[tokio::test]
async fn a_pool_whose_wake_ups_come_from_another_server_is_warned_of() {
    const DEAF: &str = "no wake-up arrives";
    let (server, stranger) = (RedisServer::start().await, RedisServer::start().await);
    let mut gone = RedisServer::start().await;
    gone.stop().await;
    for subscriptions in [stranger.url(), gone.url()] {
        let builder = RedisStore::from_pool(pool(&server), subscriptions);
        let builder = builder.response_timeout(Duration::from_secs(1));
        let (store, log) = logged(builder.connect()).await;
        store.unwrap();
        assert!(log.contains(DEAF), "{log}");
    }
    // The documented rights have no `+role`, by which `Replicas::All` learns of replicas.
    for (subscriptions, replicas) in [
        (server.url(), Replicas::None),
        (restricted(&server).await, Replicas::All),
    ] {
        let builder = RedisStore::from_pool(pool(&server), subscriptions).replicas(replicas);
        let (store, log) = logged(builder.connect()).await;
        store.unwrap();
        assert!(!log.contains(DEAF), "{log}");
    }
}
