//! Locks in Redis or Valkey, shared by many processes.
//!
//! The keys, fields, channels and messages are Redisson's, so Java services that use Redisson 3.15 to 4.7 share the same
//! locks. Additional data is in separate keys, `tower_lock_…`. They expire, except the mark of a limit of permits that was set.

use std::fmt;
use std::sync::Arc;

use deadpool_redis::{Config, Pool};
use redis::IntoConnectionInfo;

use crate::error::StoreError;

mod admin;
mod audit;
mod batches;
mod builder;
mod calls;
mod channels;
mod cluster;
mod connection;
mod connector;
mod endpoint;
mod failure;
mod in_parts;
mod info;
mod listing;
mod live;
mod many;
mod master;
mod names;
mod node;
mod node_context;
mod operations;
mod outside;
mod pooled;
mod replicas;
mod reply;
mod rights;
mod role;
mod router;
mod script;
mod sentinel;
mod slot;
mod stream;
mod subscriber;
mod subscriptions;
mod thread;
mod timeouts;
#[cfg(feature = "redis-tls")]
mod tls;
#[cfg(not(feature = "redis-tls"))]
#[path = "redis/no_tls.rs"]
mod tls;
mod waits;
mod wake_up_check;

pub use builder::RedisStoreBuilder;
use outside::Outside;
pub use replicas::Replicas;
pub use rights::{AclRules, MissingRights};
use router::Router;
use thread::ConnectionThread;

/// Locks in one Redis or Valkey server (6.2 or newer), in the one that [sentinels](RedisStore::sentinel) name, or in a
/// [Cluster](RedisStore::cluster).
///
/// Commands share a few connections. One more connection listens for wake-ups, and one is for renewals. All of them are
/// replaced when they break. While Redis is down, calls fail at
/// once, and a background task reconnects.
///
/// Clients renew their holds on a thread of the store, so that locks stay held while all workers of the runtime are busy.
/// The thread starts with the first hold, or, with sentinels and in a Cluster, with the first connection.
///
/// When its memory is full, Redis refuses new grants, unless the script of the attempt has first removed something, such as a permit
/// that has lapsed. But holds are still released, with their records, and attempts
/// withdrawn: each of these scripts first frees memory, or writes without allocation, and Redis lets a script that has
/// written finish.
///
/// Several keys are acquired in one script, all of them or any, if they are at most a hundred and one server has them.
///
/// Clones share everything. When the last one is dropped, so are its connections and tasks.
///
/// `Reentrant` and `Fair` attempts on one key exclude each other, but a `Reentrant` release does not wake `Fair` waiters,
/// as with Redisson: they find out by polling, within a second.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
/// use tower_distributed_lock::{LockClient, RedisStore};
///
/// let locks = LockClient::new(RedisStore::connect("redis://127.0.0.1").await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<StoreInner>,
}

struct StoreInner {
    /// Declared before `router`: its tasks use the router, and end first.
    outside: Arc<Outside>,
    router: Arc<Router>,
    background: Arc<ConnectionThread>,
    /// Whether replicas must acknowledge changes.
    acknowledging: bool,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("router", &self.inner.router)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects to the server at `redis://…`, `rediss://…` (with the feature `redis-tls`) or `redis+unix://…`.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`], also for cancellation.
    pub async fn connect(address: impl IntoConnectionInfo) -> Result<Self, StoreError> {
        Self::builder(address).connect().await
    }

    /// A builder of a store for the server at `address`.
    pub fn builder(address: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder::new(address)
    }

    /// A builder of a store in the Redis Cluster of the servers at `addresses`.
    ///
    /// Some of its servers are enough: they name the others, which get connections with the credentials, protocol and TLS
    /// settings of the first address.
    ///
    /// * **TLS.** All addresses begin with `rediss://`, or none. The certificate of a server must contain the name that
    ///   the others use for it: its IP address, unless they announce host names (`cluster-announce-hostname`, with
    ///   `cluster-preferred-endpoint-type hostname`). A server that is not trusted fails alone, with an error that names
    ///   it: nothing is sent to it, and the other servers are used.
    /// * **Names.** All keys of a lock are in one slot. A name that Redisson's naming would spread over several slots,
    ///   such as `{}a`, `a{b` or `a}b`, is refused with [`Unsupported`](crate::LockError::Unsupported); so is the empty
    ///   name.
    /// * **Several keys** are taken by one script if they share a slot, as `{user:7}.cart` and `{user:7}.stock` do. Others
    ///   are taken one after the other, finally all or nothing.
    /// * **Moving slots** are followed, and so are replicas that take over. While a slot moves, or no server serves it,
    ///   calls fail with [`Transient`](crate::StoreErrorKind::Transient): waiting requests and releases try again. A
    ///   server that fails affects only the locks in its slots.
    /// * **Wake-ups** use the same channels as Redisson's; see [`sharded_channels`](RedisStoreBuilder::sharded_channels).
    /// * **A failover loses** changes that the new master did not have, as with sentinels: the holder gets
    ///   [`Lost`](crate::LockError::Lost), and no confirmation. With [`Replicas`] a change counts only after
    ///   acknowledgements.
    ///
    /// A restricted user needs more rights than for one server: [`AclRules::cluster`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let seeds = ["redis://locks:secret@10.0.0.1:7000", "redis://locks:secret@10.0.0.2:7000"];
    /// let store = RedisStore::cluster(seeds).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster<A: IntoConnectionInfo>(
        addresses: impl IntoIterator<Item = A>,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::for_cluster(addresses)
    }

    /// A builder of a store from a configuration of [`deadpool_redis`]. The store keeps its connections, so of the settings of
    /// the pool only the largest size and the time limit for creation count.
    pub fn from_config(config: Config) -> RedisStoreBuilder {
        RedisStoreBuilder::with_config(config)
    }

    /// A builder of a store that takes its connections from `pool`, and keeps them.
    ///
    /// The target of a pool's connections is unknown, so `subscriptions` names the server for the connection for wake-ups:
    /// it must be the same server.
    ///
    /// The pool hands out, and counts, one connection for each that commands share, up to its largest size. What replaces
    /// such a connection later, and the connections for renewals, come from the pool's manager directly: the pool's hooks,
    /// such as `post_create`, do not see them, and a pool that is closed does not prevent them. Dropping the store ends all
    /// of them.
    pub fn from_pool(pool: Pool, subscriptions: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder::with_pool(pool, subscriptions)
    }

    /// The rights that the Redis user of a store needs for the locks whose names begin with one of `prefixes`; the empty
    /// one stands for all locks.
    ///
    /// Names with a hash tag of their own need a prefix that ends in the brace, such as `order:{`. Records of requests
    /// (`IdempotencyLayer`) begin with `idempotency:`.
    pub fn acl_rules<P>(prefixes: impl IntoIterator<Item = P>) -> AclRules
    where
        P: Into<String>,
    {
        AclRules::new(prefixes.into_iter().map(Into::into).collect())
    }

    /// A builder of a store in the server that the sentinels name as `master`.
    ///
    /// List all sentinels: the answer with the latest failover counts. Every new connection asks them again, and checks
    /// that its server is a master. Commands and wake-ups follow a failover without a restart: until there is a master,
    /// calls fail with [`Transient`](crate::StoreErrorKind::Transient), so that waiting requests continue to wait; holds
    /// that the new master has are renewed there, and others are lost. While no sentinel answers, open connections are
    /// still used.
    ///
    /// The user of the sentinels needs the right `+sentinel`.
    ///
    /// With `rediss://` addresses, connections to the sentinels use TLS, and so do those to the servers, unless
    /// [`servers`](RedisStoreBuilder::servers) is set. The authorities and the client certificate are the same for both.
    /// Certificates must contain the sentinels' addresses as they are written here, and the servers' addresses as the
    /// sentinels name them: IP addresses, unless they announce host names (`resolve-hostnames` and `announce-hostnames` of
    /// the sentinels, `replica-announce-ip` of the servers). The answer of an untrusted sentinel is ignored; nothing is
    /// sent to an untrusted master, and the error names it.
    ///
    /// A failover loses changes that the new master did not have. A hold that it did not have can be granted again while
    /// its holder still works: the holder's renewal or release returns [`Lost`](crate::LockError::Lost). [`Replicas`] can
    /// prevent that.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let store = RedisStore::sentinel(sentinels, "mymaster")
    ///     .servers("redis://locks:secret@any/0") // user, password, database; no host: the sentinels know it
    ///     .connect()
    ///     .await?;
    ///
    /// // All of it by TLS.
    /// let sentinels = ["rediss://10.0.0.1:26379", "rediss://10.0.0.2:26379", "rediss://10.0.0.3:26379"];
    /// let store = RedisStore::sentinel(sentinels, "mymaster")
    ///     .servers("rediss://locks:secret@any/0")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel<A: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = A>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::with_sentinels(sentinels, master)
    }
}
