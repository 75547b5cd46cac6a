//! Locks in Redis or Valkey, shared by many processes.
//!
//! The keys, fields, channels and messages are Redisson's, so Java services that use Redisson 3.15 to 4.7 share the same
//! locks. Additional data is in separate keys, `tower_lock_…`. They expire, except the mark of a limit of permits that was set.
//!
//! Connections, parser and values are those of the `redis` crate. What is above them is the store's own, on floors that each know those
//! below. `protocol` says what to send and what an answer means, without I/O. `link` is a connection that heals, also behind sentinels.
//! `listen` has the subscriptions. `servers` finds the link that serves a key, also in a Cluster. `operate` is the operator's side. Where
//! `link`, `link::sentinel`, `listen` and `servers::cluster` begin stands why they do not use what the `redis` crate has.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

mod batches;
mod builder;
mod link;
mod listen;
mod operate;
mod operations;
mod outside;
mod protocol;
mod servers;

/// The crates whose types are in the signatures of [`RedisStore`].
pub use {deadpool_redis, redis};

pub use builder::RedisStoreBuilder;
pub use link::endpoint::access::Credentials;
use link::thread::ConnectionThread;
pub use operate::acl::AclRules;
use outside::Outside;
use servers::Router;

/// Locks in one Redis or Valkey server (6.2 or newer), in the one that [sentinels](RedisStore::sentinel) name, or in a
/// [Cluster](RedisStore::cluster).
///
/// Commands share a few connections. One more connection listens for wake-ups, always in RESP3, and one is for renewals. All of them are
/// replaced when they break. While Redis is down, calls fail at
/// once, and a background task reconnects.
///
/// Clients renew their holds on a thread of the store, so that locks stay held while all workers of the runtime are busy.
/// The thread starts with the first hold or subscription, or, with sentinels and in a Cluster, with the first connection.
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
/// `Reentrant` and `Fair` attempts on one key exclude each other. A `Reentrant` release wakes the first of both, if some of this
/// crate wait in the fair queue; Redisson's plain locks wake no `Fair` waiter, which finds out by polling, within a second.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tower_distributed_lock::error::StoreError> {
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
    /// Whether a record was kept or asked for: an audit warns where records may take the memory of locks.
    recording: AtomicBool,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}
