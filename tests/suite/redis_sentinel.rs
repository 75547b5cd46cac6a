//! `RedisStore` behind sentinels, through every change of the master.

mod audit;
pub(crate) mod failover;
mod lost_write;
mod sentinels;

use std::collections::BTreeMap;
use std::time::Duration;

use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use crate::support::{RedisSentinels, RedisServer, Replicated, eventually};

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

/// The connections of stores to a server. Those of sentinels have a name, and those of replicas carry the handshake of a
/// replication or are marked as replicas: both are left out.
async fn connections(server: &RedisServer) -> Vec<BTreeMap<String, String>> {
    let mut clients = server.client_list().await;
    clients.retain(|client| {
        let handshake = matches!(&*client["cmd"], "NULL" | "replconf" | "psync");
        client["name"].is_empty() && matches!(&*client["flags"], "N" | "P") && !handshake
    });
    clients
}

async fn until_connections(server: &RedisServer, expected: usize) {
    eventually("the stores are connected to it", LIMIT, async || {
        let found = connections(server).await;
        (found.len() == expected).then_some(()).ok_or(found)
    })
    .await;
}

/// Waits until at least so many connections of stores lead to the server.
///
/// A client has further connections once it has waited or renewed. A slow machine decides whether it has.
async fn until_used(server: &RedisServer, least: usize) {
    eventually("the clients use the server", LIMIT, async || {
        let found = connections(server).await;
        (found.len() >= least).then_some(()).ok_or(found)
    })
    .await;
}

/// Waits until clients use `servers[master]` with at least so many connections, and no other server.
async fn until_moved(replicated: &Replicated, master: usize, least: usize) {
    until_used(&replicated.servers[master], least).await;
    for (index, server) in replicated.servers.iter().enumerate() {
        if index != master {
            until_connections(server, 0).await;
        }
    }
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
        store.release(&attempt.hold, None).await
    })
    .await;
}
