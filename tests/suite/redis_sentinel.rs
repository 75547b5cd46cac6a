//! `RedisStore` behind sentinels, through every change of the master.

mod audit;
mod failover;
mod lost_write;
mod sentinels;

use std::time::Duration;
use tower_distributed_lock::LockStoreExt;

use tower_distributed_lock::{LockClient, LockMode, LockStore, RedisStore};

use crate::support::{RedisSentinels, RedisServer, eventually};

/// A failover takes seconds, here more than elsewhere.
const LIMIT: Duration = Duration::from_secs(90);

async fn store(sentinels: &RedisSentinels) -> RedisStore {
    RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME)
        .connect()
        .await
        .unwrap()
}

async fn client(sentinels: &RedisSentinels) -> LockClient {
    LockClient::new(store(sentinels).await)
}

/// The number of connections of stores to a server. Connections of sentinels have a name and are
/// left out.
async fn connections(server: &RedisServer) -> usize {
    let clients = server.client_list().await;
    let ours = |client: &&_| {
        let client: &std::collections::BTreeMap<String, String> = client;
        client["name"].is_empty() && matches!(&*client["flags"], "N" | "P")
    };
    clients.iter().filter(ours).count()
}

async fn until_connections(server: &RedisServer, expected: usize) {
    eventually("the stores are connected to it", LIMIT, async || {
        let found = connections(server).await;
        (found == expected).then_some(()).ok_or(found)
    })
    .await;
}

async fn until_it_holds(server: &RedisServer, key: &str) {
    eventually("the server has the lock", LIMIT, async || {
        server.dump().await.contains_key(key)
    })
    .await;
}

/// Repeats an acquisition until there is a master.
async fn works(store: &RedisStore, key: &str) {
    let attempt = crate::redis_store::attempt(key, LockMode::Reentrant);
    eventually("the store works", LIMIT, async || {
        store.acquire(&attempt).await?;
        store.release_one(&attempt.hold).await
    })
    .await;
}
