//! One store of each kind, for tests that concern all of them.

use tower_distributed_lock::{LockAdmin, LockClient, LockClientBuilder, MemoryStore, RedisStore};
use tower_distributed_lock_quorum::QuorumStore;

use super::{RedisCluster, RedisServer};

/// A store, which any number of clients share.
pub(crate) enum Site {
    Memory(MemoryStore),
    Quorum([MemoryStore; 3]),
    Redis(Box<RedisServer>),
    /// Shared with other tests.
    Cluster(&'static RedisCluster),
}

impl Site {
    /// One of each kind.
    pub(crate) async fn all() -> Vec<Self> {
        vec![
            Self::Memory(MemoryStore::new()),
            Self::Quorum(std::array::from_fn(|_| MemoryStore::new())),
            Self::Redis(Box::new(RedisServer::start().await)),
            Self::Cluster(RedisCluster::shared().await),
        ]
    }

    /// What it is called in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Quorum(_) => "quorum",
            Self::Redis(_) => "redis",
            Self::Cluster(_) => "cluster",
        }
    }

    pub(crate) fn keeps_records(&self) -> bool {
        !matches!(self, Self::Quorum(_))
    }

    /// Whether it lists its keys.
    pub(crate) fn lists(&self) -> bool {
        !matches!(self, Self::Quorum(_))
    }

    /// A client like that of another process.
    pub(crate) async fn client(&self) -> LockClient {
        self.builder().await.build()
    }

    pub(crate) async fn builder(&self) -> LockClientBuilder {
        match self {
            Self::Memory(store) => LockClient::builder(store.clone()),
            Self::Quorum(stores) => {
                LockClient::builder(QuorumStore::new(stores.clone()).unwrap().inspected())
            }
            Self::Redis(server) => {
                LockClient::builder(RedisStore::connect(server.url()).await.unwrap())
            }
            Self::Cluster(cluster) => {
                let store = RedisStore::cluster(cluster.urls()).connect().await;
                LockClient::builder(store.unwrap())
            }
        }
    }

    pub(crate) async fn admin(&self) -> LockAdmin {
        self.client().await.admin().unwrap()
    }
}
