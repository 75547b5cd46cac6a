//! The settings of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::announcement::Announcement;
use super::{Inner, LockClient};
#[cfg(doc)]
use crate::error::LockError;
use crate::limits::FOR_EVER;
use crate::lock::Namespace;
use crate::release::Core;
use crate::spawn::Spawner;
use crate::store::{LockStore, ProcessInfo, Store};
use crate::table::{HandoverLimits, Table};
use crate::telemetry::{self, Events};

/// The default of [`LockClientBuilder::max_keys`].
const MAX_KEYS: usize = 1 << 18;

/// The default of [`LockClientBuilder::max_keys_per_request`].
const MAX_KEYS_PER_REQUEST: usize = 1024;

/// How long counters of fencing tokens are kept after their last use.
const TOKEN_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Settings of a [`LockClient`].
///
/// Waiters of one key and one process queue in the process, and a released lock is handed over directly to the next of them.
/// These settings limit how long that continues before other processes get their turn. Then every process that listens for the
/// lock at that moment may have a turn before this one asks again.
///
/// ```
/// # use tower_distributed_lock::{LockClient, MemoryStore};
/// let locks = LockClient::builder(MemoryStore::new())
///     .handovers(16) // other processes get their turn sooner
///     .max_keys(100_000) // a key that is too many is refused: `LockError::Overloaded`
///     .build();
/// ```
#[must_use]
pub struct LockClientBuilder {
    store: Store,
    handover_limits: HandoverLimits,
    max_keys: usize,
    max_keys_per_request: usize,
    token_retention: Option<Duration>,
    runtime: Option<Handle>,
    /// Or why it is none.
    namespace: Result<Namespace, &'static str>,
    label: Option<String>,
}

impl LockClientBuilder {
    pub(super) fn new(store: impl LockStore) -> Self {
        Self {
            store: Store::new(store),
            handover_limits: HandoverLimits::default(),
            max_keys: MAX_KEYS,
            max_keys_per_request: MAX_KEYS_PER_REQUEST,
            token_retention: Some(TOKEN_RETENTION),
            runtime: None,
            namespace: Ok(Namespace::default()),
            label: None,
        }
    }

    /// Limits the hand-overs inside the process to `times` in a row (default 64; 0: none).
    pub fn handovers(mut self, times: u32) -> Self {
        self.handover_limits.handovers = times;
        self
    }

    /// Limits the hand-overs inside the process to `time` after the grant of the store (default 50 ms).
    pub fn handover_time(mut self, time: Duration) -> Self {
        self.handover_limits.handover_time = time.min(FOR_EVER);
        self
    }

    /// Lets new readers join a read hold of the process for `window` after the grant of the store (default 5 ms). Later readers
    /// ask the store, which knows waiting writers of other processes.
    pub fn share_window(mut self, window: Duration) -> Self {
        self.handover_limits.share_window = window.min(FOR_EVER);
        self
    }

    /// Sets how many keys the client's requests may hold or wait for at a time (default 262,144). A request for one more fails
    /// with [`LockError::Overloaded`].
    ///
    /// It limits the memory of the client where callers choose the keys. A few more keys are possible while threads race for the
    /// last one.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets how many keys one [`lock_all`](LockClient::lock_all) or [`lock_any`](LockClient::lock_any) may name (default 1024). A
    /// request that names more fails with [`LockError::Invalid`], and takes nothing.
    pub fn max_keys_per_request(mut self, keys: usize) -> Self {
        self.max_keys_per_request = keys;
        self
    }

    /// Sets how long the store keeps a key's counter of fencing tokens after its last use (default 30 days; `None`: for ever, as
    /// Redisson does).
    ///
    /// If counters are kept for ever, there are as many as keys that were ever fenced, and clients may choose keys. Tokens also
    /// rise after a counter has expired: without a counter they follow the server's clock, and a counter is kept while its tokens
    /// are ahead of that clock. A counter that never expires, as one that Redisson has begun, remains so.
    ///
    /// Redisson's `getFencedLock` does not extend an expiry, and begins at 1 without a counter: where Java services fence the
    /// same keys, choose `None`.
    pub fn token_retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.token_retention = retention.into();
        self
    }

    /// Puts `name` before the names of all keys and records of this client, so that services, or staging and production, share
    /// one Redis and no lock (default: nothing).
    ///
    /// With `namespace("prod-shop")` the key `lock:order:42` is `prod-shop:lock:order:42` in the store; so is what belongs to
    /// it, such as its record and its channels. Layers, extractors and the [`admin`](LockClient::admin) of the client use the name
    /// space too. [`LockKey::name`], logs and errors show the name without it. A hash tag in a key's name keeps its meaning in a
    /// Cluster.
    ///
    /// A name space is one word, which may stand in braces, and its end: the colons or dots in which it ends, else a colon that
    /// is added, as in `app.`, `test::` and `{app}`, which is `{app}:`. None begins another, and a name in a name space does not
    /// begin with a colon or a dot: so a name in the store belongs to one name space. A key of another name space, such as that
    /// of a guard, is [`Invalid`](crate::LockError::Invalid) here.
    ///
    /// A Java service shares these locks with Redisson's `nameMapper` that puts the same text before a name:
    /// `map(name) = "app." + name`. The other words of a longer prefix belong to the names. For a user of Redis with few rights, see
    /// [`AclRules::namespace`](crate::store::redis::AclRules::namespace).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let shop = LockClient::builder(store.clone()).namespace("prod-shop").build();
    /// let stock = LockClient::builder(store).namespace("prod-stock").build();
    /// let (one, other) = (shop.lock("lock:nightly").await?, stock.lock("lock:nightly").await?);
    /// assert_eq!(one.key().as_str(), "prod-shop:lock:nightly");
    /// # one.release().await?; other.release().await
    /// # }
    /// ```
    ///
    /// [`LockKey::name`]: crate::LockKey::name
    pub fn namespace(mut self, name: impl AsRef<str>) -> Self {
        self.namespace = Namespace::new(name.as_ref());
        self
    }

    /// Runs the background work of the client on `runtime`: renewals, and what a caller leaves (default: on the store's runtime, which
    /// `RedisStore` has; otherwise on that of the first request). The releases of dropped guards and the questions of requests that
    /// wait run on the multi-threaded runtime of their callers, if there is one, and here when that has ended.
    ///
    /// This runtime never changes. So give a client a runtime if it outlives the one of its first request, as a client that several tests
    /// share does, or if it is used outside of every runtime; and if a [`MemoryStore`](crate::MemoryStore) has users that block all
    /// workers of their runtime for longer than a lease. The runtime must be driven as long as locks are held. When it has ended,
    /// requests fail with [`LockError::Invalid`], and a guard that is dropped is free when its lease is over.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Announces this process in the store under `label`, such as the name of the service (default: it does not).
    ///
    /// [`LockAdmin`](crate::LockAdmin), the console and `lockctl` then show its [host, id and label](crate::store::ProcessInfo)
    /// beside the locks that it holds, and the route of a hold that has lived for some seconds. The entry exists from the first
    /// request until [`shutdown`](LockClient::shutdown), or the end of the last clone, and is written every 20 seconds; that of a
    /// process that dies expires after three minutes. A request costs nothing more. A store without entries, and a user of Redis
    /// without the [right](crate::store::redis::AclRules::announce), is logged, and locks work as before.
    ///
    /// It is not the default, because every user of the store can read the entry, and because a user of Redis with few rights
    /// needs one more for it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::builder(MemoryStore::new()).announce("orders-api").build();
    /// let guard = locks.lock("lock:report").await?;
    /// # tokio::task::yield_now().await;
    /// let holder = &locks.admin()?.inspect("lock:report").await?.holders[0];
    /// let process = holder.process.as_ref().expect("it has announced itself");
    /// assert_eq!((process.pid, &*process.label), (std::process::id(), "orders-api"));
    /// # guard.release().await
    /// # }
    /// ```
    pub fn announce(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Makes the client.
    ///
    /// # Panics
    ///
    /// If the [name space](Self::namespace) is longer than 64 bytes, or not one word of letters, digits and `-_~/`, in braces or
    /// not, with colons or dots at its end only.
    pub fn build(self) -> LockClient {
        telemetry::describe();
        let namespace = self.namespace.unwrap_or_else(|reason| {
            panic!("this `LockClient` has no proper `namespace`: {reason}");
        });
        let id = new_id();
        let releases_later = !self.store.answers_at_once();
        let table = Table::new(self.handover_limits, self.max_keys, releases_later);
        let core = Arc::new(Core::new(
            id,
            self.store,
            table,
            Spawner::new(self.runtime),
            Events::default(),
            self.token_retention,
        ));
        let announcement = self.label.and_then(|label| {
            let store = core.store.capabilities.inspector().cloned();
            let store = store.inspect_err(|error| {
                tracing::warn!(%error, "could not announce this process");
            });
            let process = ProcessInfo::here(label);
            Some(Announcement::new(process, store.ok()?))
        });
        LockClient {
            inner: Arc::new(Inner {
                core,
                tasks: TaskTracker::new(),
                max_keys_per_request: self.max_keys_per_request,
                namespace,
                announcement,
            }),
        }
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("handover_limits", &self.handover_limits)
            .finish_non_exhaustive()
    }
}

/// Random, and of another version than Redisson's ids, so that a script can distinguish their holds.
fn new_id() -> Uuid {
    uuid::Builder::from_custom_bytes(Uuid::new_v4().into_bytes()).into_uuid()
}
