//! `RedisStore` behind sentinels, through every change of the master.

mod audit;
pub(crate) mod failover;
mod lost_write;
mod sentinels;

use std::collections::BTreeMap;
use std::time::Duration;
use tower_distributed_lock::LockStoreExt;

use tower_distributed_lock::{LockClient, LockMode, LockStore, RedisStore};

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

/// The connections of stores to a server. Connections of sentinels have a name and are left out.
async fn connections(server: &RedisServer) -> Vec<BTreeMap<String, String>> {
    let mut clients = server.client_list().await;
    clients.retain(|client| client["name"].is_empty() && matches!(&*client["flags"], "N" | "P"));
    clients
}

async fn until_connections(server: &RedisServer, expected: usize) {
    eventually("the stores are connected to it", LIMIT, async || {
        let found = connections(server).await;
        (found.len() == expected).then_some(()).ok_or(found)
    })
    .await;
}

/// Waits until clients with this many connections for commands use `servers[master]`, and no other server.
///
/// A client has further connections once it has waited or renewed. A slow machine decides whether it has.
async fn until_moved(replicated: &Replicated, master: usize, commands: usize) {
    eventually("the clients use the new master", LIMIT, async || {
        let mut found = Vec::new();
        for server in &replicated.servers {
            found.push(connections(server).await);
        }
        let mut all = found.iter().enumerate();
        all.all(|(index, here)| match index == master {
            true => here.len() >= commands,
            false => here.is_empty(),
        })
        .then_some(())
        .ok_or(found)
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
