//! The testbeds of the suite.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::{MemoryStore, RedisStore};
use tower_distributed_lock_testing::conformance::{Clock, Testbed};
use tower_distributed_lock_testing::{Fault, Faults, FaultyStore};

use super::apart::Apart;
use super::worked_store::WorkedStore;
use crate::support::{Dump, Entry, RedisCluster, RedisServer, Stored};

/// A memory store follows tokio's clock.
pub(super) const PAUSED: Clock = Clock::Paused(|| {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
});

/// A store with delays, so that questions overtake each other, and callers are dropped while theirs
/// is under way.
fn far<S: LockStore>(store: S) -> FaultyStore<S> {
    let slow = Faults::none().chance(Fault::Slow, 1.0);
    FaultyStore::new(
        store,
        slow.delay(Duration::from_millis(2)),
        fastrand::u64(..),
    )
}

pub(super) fn left(is_empty: bool) -> Vec<String> {
    let left = (!is_empty).then(|| "a hold, a waiter or a listener".to_owned());
    left.into_iter().collect()
}

/// The keys and channels that are left on a Redis server.
fn left_in_redis(keys: Dump, channels: BTreeMap<String, usize>) -> Vec<String> {
    let keys = keys.into_iter();
    let keys = keys.filter(|(key, entry)| !is_remembered(key, entry));
    let keys = keys.map(|(key, _)| key);
    keys.chain(channels.into_keys()).collect()
}

/// Whether Redis keeps it when nothing is held: Redisson keeps the counter of the fencing tokens for ever, and a number of
/// free permits, and the limit beside it, are kept for a day, for clients of Redisson that wait.
fn is_remembered(key: &str, entry: &Entry) -> bool {
    let is_number = |text: &String| text.parse::<i64>().is_ok();
    let counts = matches!(&entry.stored, Stored::String(text) if is_number(text));
    key.starts_with("redisson_lock_token:")
        || key.starts_with("tower_lock_limit:") && entry.ttl.is_some()
        || counts && entry.ttl.is_some() && !key.starts_with("tower_lock_")
}

pub(super) struct Memory(MemoryStore);

impl Testbed for Memory {
    type Store = MemoryStore;
    const CLOCK: Clock = PAUSED;

    async fn start() -> Self {
        Self(MemoryStore::new())
    }

    async fn connect(&self) -> MemoryStore {
        self.0.clone()
    }

    async fn leftovers(&self) -> Vec<String> {
        left(self.0.is_empty())
    }
}

/// A memory store with delays.
pub(super) struct Distant(MemoryStore);

impl Testbed for Distant {
    type Store = FaultyStore<MemoryStore>;
    const CLOCK: Clock = PAUSED;

    async fn start() -> Self {
        Self(MemoryStore::new())
    }

    async fn connect(&self) -> Self::Store {
        far(self.0.clone())
    }

    async fn leftovers(&self) -> Vec<String> {
        left(self.0.is_empty())
    }
}

/// A Redis server of its own.
pub(super) struct Redis(RedisServer);

impl Testbed for Redis {
    type Store = RedisStore;

    async fn start() -> Self {
        Self(RedisServer::start().await)
    }

    async fn connect(&self) -> RedisStore {
        RedisStore::connect(self.0.url()).await.unwrap()
    }

    async fn leftovers(&self) -> Vec<String> {
        left_in_redis(self.0.dump().await, self.0.pubsub_channels().await)
    }

    async fn connections(&self) -> usize {
        self.0.client_list().await.len()
    }

    /// As in an eviction or a flush, no waiter is woken.
    async fn steal(&self, hold: &Hold) {
        let permits = format!("{{{}}}:timeout", hold.key);
        let _: i64 = self.0.ask(&["DEL", hold.key.as_str(), &permits]).await;
    }
}

/// A shared Redis Cluster, with names of its own.
pub(super) struct Cluster {
    cluster: &'static RedisCluster,
    prefix: String,
}

impl Testbed for Cluster {
    type Store = Apart<RedisStore>;

    async fn start() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            cluster: RedisCluster::shared().await,
            prefix: format!("env-{}.", NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn connect(&self) -> Self::Store {
        let store = RedisStore::cluster(self.cluster.urls()).connect().await;
        Apart::new(store.unwrap(), &self.prefix)
    }

    async fn leftovers(&self) -> Vec<String> {
        let keys = self.cluster.dump(&self.prefix).await;
        left_in_redis(keys, self.cluster.pubsub_channels(&self.prefix).await)
    }

    async fn steal(&self, hold: &Hold) {
        let name = format!("{}{}", self.prefix, hold.key);
        self.cluster.delete(&name).await;
        self.cluster.delete(&format!("{{{name}}}:timeout")).await;
    }
}

/// The store in the documentation of `LockStore`.
pub(super) struct Worked(WorkedStore);

impl Testbed for Worked {
    type Store = WorkedStore;
    const CLOCK: Clock = PAUSED;

    async fn start() -> Self {
        Self(WorkedStore::default())
    }

    async fn connect(&self) -> WorkedStore {
        self.0.clone()
    }

    async fn leftovers(&self) -> Vec<String> {
        self.0.leftovers()
    }
}
