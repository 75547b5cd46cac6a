//! How a [`RedisStore`] is put together.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_redis::{Config, Manager, Pool, PoolConfig, Runtime};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError,
};

use super::lane::{Lane, Place};
use super::subscriptions::Subscriptions;
use super::{Inner, RedisStore};
use crate::error::{StoreError, StoreErrorKind};

/// How many connections share the traffic. One is nearly as fast, and more than two add nothing.
const LANES: usize = 2;

/// How many commands may wait for a connection's task before their senders do.
const BACKLOG: usize = 1024;

/// How long to wait for Redis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) response: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(3),
        }
    }
}

/// Sets up a [`RedisStore`]; [`RedisStore::builder`] begins one.
///
/// ```no_run
/// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
/// use std::time::Duration;
/// use tower_distributed_lock::RedisStore;
///
/// let store = RedisStore::builder("redis://127.0.0.1")
///     .response_timeout(Duration::from_secs(1))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    address: Result<ConnectionInfo, StoreError>,
    connections: Connections,
    timeouts: Timeouts,
    lanes: usize,
}

#[derive(Debug, Clone)]
enum Connections {
    Ours(PoolConfig),
    Given(Pool),
}

impl RedisStoreBuilder {
    pub(super) fn new(address: impl IntoConnectionInfo) -> Self {
        Self {
            address: address.into_connection_info().map_err(bad_address),
            connections: Connections::Ours(PoolConfig::default()),
            timeouts: Timeouts::default(),
            lanes: LANES,
        }
    }

    pub(super) fn with_config(config: Config) -> Self {
        let pool = config.get_pool_config();
        let mut builder = match (config.url, config.connection) {
            (Some(url), None) => Self::new(url),
            (None, connection) => Self::new(connection.unwrap_or_default()),
            (Some(_), Some(_)) => Self {
                address: Err(refused(
                    "the configuration has both `url` and `connection`: remove one",
                )),
                ..Self::new("redis://")
            },
        };
        builder.connections = Connections::Ours(pool);
        builder
    }

    pub(super) fn with_pool(pool: Pool, subscriptions: impl IntoConnectionInfo) -> Self {
        Self {
            connections: Connections::Given(pool),
            ..Self::new(subscriptions)
        }
    }

    /// How long a command may go unanswered. The default is 3 seconds.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// How long connecting may take, from the name lookup to the first answer. The default is 5 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// How many connections of the pool carry the commands, at least one. The default is 2; a smaller pool gives what it
    /// has. They are kept for as long as the store lives. Two more connections, outside the pool, listen for wake-ups and
    /// renew; each is made when it is first needed.
    pub fn connections(mut self, connections: usize) -> Self {
        self.lanes = connections.max(1);
        self
    }

    /// Connects, and makes sure that the server answers.
    ///
    /// # Errors
    ///
    /// If the address is unusable, the server cannot be reached, the password is wrong, or the server is still loading.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.connect_lazy()?;
        for lane in &store.inner.lanes {
            lane.connect().await?;
        }
        Ok(store)
    }

    /// Connects when the store is first used, and tries again in the background until Redis is there: for a service that
    /// starts before it.
    ///
    /// # Errors
    ///
    /// If the address is unusable.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        let address = self.address?;
        let client = Client::open(address.clone()).map_err(bad_address)?;
        let pool = match self.connections {
            Connections::Ours(config) => new_pool(address, config, self.timeouts)?,
            Connections::Given(pool) => pool,
        };
        let lanes = self.lanes.min(pool.status().max_size);
        if lanes == 0 {
            return Err(refused(
                "the pool has no room for a connection: raise its maximum size",
            ));
        }
        Ok(RedisStore {
            inner: Arc::new(Inner {
                lanes: (0..lanes)
                    .map(|_| Lane::new(pool.clone(), Place::InPool, self.timeouts))
                    .collect(),
                renewals: Lane::new(pool, Place::Apart, self.timeouts),
                thread: OnceLock::new(),
                subscriptions: Subscriptions::new(client, self.timeouts),
            }),
        })
    }
}

fn new_pool(
    address: ConnectionInfo,
    config: PoolConfig,
    timeouts: Timeouts,
) -> Result<Pool, StoreError> {
    let connection = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeouts.connect))
        .set_response_timeout(Some(timeouts.response))
        .set_pipeline_buffer_size(BACKLOG);
    let manager = Manager::new_with_config(address, connection).map_err(bad_address)?;
    Pool::builder(manager)
        .config(config)
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))
}

fn bad_address(error: RedisError) -> StoreError {
    if error.kind() == ErrorKind::InvalidClientConfig && error.to_string().contains("TLS") {
        return refused(
            "a `rediss://` address needs the feature `redis-tls` of tower-distributed-lock",
        );
    }
    StoreError::new(StoreErrorKind::Refused, error)
}

fn refused(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, text)
}
