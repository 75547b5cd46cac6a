//! The lock client: requests, and the one loop that waits for the store.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::audit::Audit;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::guard::LockGuard;
use crate::keeper::Driven;
use crate::limits::FOR_EVER;
use crate::lock::{HoldId, LockKey, LockMode, Namespace};
use crate::queue::{Pace, Queues};
use crate::store::{Answer, DynInspect, DynStore, Feature, LockStore, Unsupported, erase};
use crate::telemetry::{self, Journal};

mod acquire;
mod all;
mod attempt;
mod held;
#[cfg(feature = "console")]
mod inside;
mod places;
mod request;
mod target;
mod wait;

pub(crate) use held::around;
pub use request::LockRequest;
pub use target::Target;

/// The default of [`LockClientBuilder::max_keys`].
const MAX_KEYS: usize = 1 << 18;

/// The default of [`LockClientBuilder::max_keys_per_request`].
const MAX_KEYS_PER_REQUEST: usize = 1024;

/// How long counters of fencing tokens are kept after their last use.
const TOKEN_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Takes locks in a store. Cheap to clone; clones are the same client.
///
/// A client works in the background: one task renews what is held, another finishes what dropped guards and cancelled
/// requests have left. They start when they are first needed, and end when the last clone and the last guard are gone.
///
/// # A runtime whose workers are all busy
///
/// Handlers that compute, or block, on all workers of a runtime keep it from doing anything else. With a `RedisStore`
/// (and a quorum of those) what is held is renewed all the same, on a thread and a connection of the store's own: the
/// locks stay held for as long as the process lives, and releases are confirmed afterwards. [`max_hold`] is what ends the
/// hold of a handler that never comes back. With a [`MemoryStore`] renewals need a free worker, unless [`renew_on`] says
/// otherwise: a hold that was not renewed in time is lost, at its deadline, and its release says so.
///
/// Whatever else a client does waits for a worker: a guard that is dropped meanwhile is renewed no more, and released
/// late or not at all, so that its lease ends it; a waiter in a fair queue loses its place after
/// [`WAITER_LIVENESS`](crate::store::WAITER_LIVENESS).
///
/// [`MemoryStore`]: crate::MemoryStore
/// [`max_hold`]: LockRequest::max_hold
/// [`renew_on`]: LockClientBuilder::renew_on
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
/// use tower_distributed_lock::{LockClient, MemoryStore};
///
/// let locks = LockClient::new(MemoryStore::new());
/// let guard = locks.lock("lock:account:42").await?;
/// // … work …
/// guard.release().await?; // `Err(Lost)` if the lock was lost meanwhile
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient {
    inner: Arc<Inner>,
}

struct Inner {
    id: Uuid,
    grants: AtomicU64,
    store: Arc<dyn DynStore>,
    queues: Arc<Queues>,
    closed: watch::Sender<bool>,
    token_retention: Option<Duration>,
    max_keys_per_request: usize,
    namespace: Namespace,
}

impl LockClient {
    /// A client of `store` with default settings.
    pub fn new(store: impl LockStore) -> Self {
        Self::builder(store).build()
    }

    /// A client of `store`, to be configured.
    pub fn builder(store: impl LockStore) -> LockClientBuilder {
        LockClientBuilder {
            store: erase(store),
            pace: Pace::default(),
            max_keys: MAX_KEYS,
            max_keys_per_request: MAX_KEYS_PER_REQUEST,
            token_retention: Some(TOKEN_RETENTION),
            renew_on: None,
            namespace: Ok(Namespace::default()),
        }
    }

    /// The identity under which this client's holds stand in the store: the first part of every hold id.
    pub fn id(&self) -> Uuid {
        self.inner.id
    }

    /// Asks for the lock on `key`: a name, or one thing of a [`Resource`](crate::Resource). Await it, or configure it first.
    ///
    /// ```
    /// # async fn f(locks: tower_distributed_lock::LockClient) -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockKey, Resource};
    ///
    /// const ORDERS: Resource = Resource::new("lock:order");
    ///
    /// let order = locks.lock(ORDERS.id(42)).await?; // in `Write` mode
    /// let report = locks.lock("lock:report").await?; // in `Reentrant` mode
    /// # order.release().await?; report.release().await
    /// # }
    /// ```
    ///
    /// A string is taken **as it is**. Compose a name of what strangers may have chosen by
    /// [`Resource::id`](crate::Resource::id) or [`LockKey::from_parts`], which escape it: in `format!("order:{id}")` an `id`
    /// such as `1:refund` names another lock.
    ///
    /// Inside a handler whose layer holds the key, another owner would wait for its own request. The client then fails with
    /// [`LockError::Invalid`] at once, unless the work was moved to another task or does not wait.
    pub fn lock(&self, key: impl Into<Target>) -> LockRequest {
        LockRequest::one(self.clone(), key.into())
    }

    /// Takes the lock on `key` if it is free; `None` if it is in use. [`LockRequest::try_acquire`] with default settings.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// # use tower_distributed_lock::{LockClient, MemoryStore};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// if let Some(guard) = locks.try_lock("lock:report").await? {
    ///     // … work …
    ///     guard.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`LockRequest::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// That of [`LockRequest::acquire`].
    pub async fn try_lock(&self, key: impl Into<Target>) -> Result<Option<LockGuard>, LockError> {
        self.lock(key).try_acquire().await
    }

    /// Asks for the locks on all `keys`, or for none of them.
    ///
    /// They are asked for at once. If one of them is in use, the request waits for it and holds none of the others
    /// meanwhile; when it has got that one, it asks for the rest. After a few such rounds it takes the keys one after the
    /// other, always in the same order, so that it gets them in the end, and requests that name the same keys never wait
    /// for each other in a circle. A key named twice is taken once. A key may come with a mode of its own.
    ///
    /// ```
    /// # async fn f(locks: tower_distributed_lock::LockClient) -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::LockMode;
    ///
    /// let both = locks.lock_all(["lock:account:1", "lock:account:2"]).await?;
    /// # drop(both);
    /// let mixed = locks.lock_all([("rates", LockMode::Read), ("ledger", LockMode::Write)]).await?;
    /// # drop(mixed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<T>(&self, keys: impl IntoIterator<Item = T>) -> LockRequest
    where
        T: Into<Target>,
    {
        LockRequest::all(self.clone(), keys.into_iter().map(Into::into).collect())
    }

    /// Asks for the lock on one of `keys`: the first that is free, or becomes free. [`LockGuard::key`] tells which.
    ///
    /// It is for a resource that is split into segments to cool it down, such as ten counters that together are one stock.
    /// Requests begin at different keys, so that the segments are used alike. A request that waits stands in the queue of
    /// every key, behind those of this process that came before, and [`max_waiters`](LockRequest::max_waiters) counts it
    /// there. In the store it has no place in a fair queue.
    ///
    /// [`LockGuard::key`]: crate::LockGuard::key
    ///
    /// ```
    /// # async fn f(locks: tower_distributed_lock::LockClient) -> Result<(), tower_distributed_lock::LockError> {
    /// let segment = locks.lock_any((0..10).map(|i| format!("stock:7:{i}"))).await?;
    /// println!("took {}", segment.key());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_any<T>(&self, keys: impl IntoIterator<Item = T>) -> LockRequest
    where
        T: Into<Target>,
    {
        LockRequest::any(self.clone(), keys.into_iter().map(Into::into).collect())
    }

    /// Ends the client: new and waiting requests fail with [`LockError::Shutdown`], and every hold is released.
    ///
    /// Guards that are still alive find their locks lost. Call it when the server has stopped serving, and before the
    /// runtime ends: what is not released then frees itself when its lease is over.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if not everything was released within `timeout`. What is not released by then goes on in
    /// the background for as long as the runtime lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not undo the shutdown.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), LockError> {
        let closed = &self.inner.closed;
        let keeper = self.inner.queues.keeper();
        closed.send_replace(true);
        keeper.abandon_all();
        let done = async {
            // The last request that was inside may have been granted something since.
            closed.closed().await;
            keeper.abandon_all();
            keeper.drained().await;
            self.inner.store.capabilities().ended().await;
        };
        tokio::time::timeout(timeout, done)
            .await
            .map_err(|elapsed| StoreError::new(StoreErrorKind::Unanswered, elapsed).into())
    }

    /// Looks at the deployment of the store: which promises hold on it, and what weakens them. For the start of a service,
    /// and for its operators.
    ///
    /// It takes no lock and changes nothing. What the store may not be asked is among the warnings.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the questions. They change nothing.
    pub async fn audit(&self) -> Result<Audit, LockError> {
        let audit = self.inner.store.clone().audit();
        Ok(self.driven(audit).await?)
    }

    /// Asks the store for an answer, and says how long that took: for a health check. It takes no lock and changes nothing.
    ///
    /// A [`RedisStore`](crate::RedisStore) asks every server that has locks, a quorum a majority.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if the store does not answer. The future waits for as long as the store does: put a timeout
    /// around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ping(&self) -> Result<Duration, LockError> {
        let began = Instant::now();
        let ping = self.inner.store.clone().ping();
        self.driven(ping).await?;
        Ok(began.elapsed())
    }

    /// How many keys this client holds or waits for just now.
    pub fn keys_in_use(&self) -> usize {
        self.inner.queues.len()
    }

    /// Whether the store can serve such requests; the text of a refusal is for the caller's eyes.
    pub(crate) fn supports(&self, mode: LockMode, fenced: bool) -> Result<(), Unsupported> {
        let capabilities = self.inner.store.capabilities();
        capabilities.check(Feature::Mode(mode))?;
        match fenced {
            true => capabilities.check(Feature::Fencing),
            false => Ok(()),
        }
    }

    /// The key in the client's name space.
    pub(crate) fn named(&self, key: LockKey) -> LockKey {
        self.inner.namespace.key(key)
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// What looks into the store.
    pub(crate) fn inspector(&self) -> Result<Arc<dyn DynInspect>, Unsupported> {
        self.inner.store.capabilities().inspector()
    }

    /// Whether the store can hold such a key; the text of a refusal is for the caller's eyes.
    pub(crate) fn accepts(&self, key: &LockKey) -> Result<(), Unsupported> {
        self.inner
            .store
            .partition(&self.named(key.clone()))
            .map(drop)
    }

    /// Whether finished work can leave something behind.
    pub(crate) fn keeps_records(&self) -> bool {
        let capabilities = self.inner.store.capabilities();
        capabilities.check(Feature::Records).is_ok()
    }

    /// What a finished piece of work has left under `key`.
    pub(crate) async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, LockError> {
        let record = self.inner.store.clone().record(self.named(key.clone()));
        Ok(self.driven(record).await?)
    }

    /// Drives a question to its end, also when its caller goes: the store is promised that.
    fn driven<T: Send + 'static>(&self, answer: Answer<T>) -> Driven<Result<T, StoreError>> {
        Driven::new(self.inner.queues.keeper().clone(), answer)
    }

    /// What happened, for a console to show.
    fn journal(&self) -> &Journal {
        self.inner.queues.journal()
    }

    /// Lets a request in, unless the client was shut down.
    ///
    /// Every request holds its [`Door`] until it has left all that it leaves behind to the background: the shutdown waits
    /// for the last one.
    fn enter(&self) -> Door {
        Door(self.inner.closed.subscribe())
    }

    fn next_hold_id(&self) -> HoldId {
        HoldId::new(
            self.inner.id,
            self.inner.grants.fetch_add(1, Ordering::Relaxed),
        )
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}

/// What a request holds while it takes locks. It is dropped after the work: what the work leaves is counted by then.
struct Door(watch::Receiver<bool>);

impl Door {
    /// Works until the client is shut down.
    async fn unless_closed<T>(
        &mut self,
        work: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let mut work = pin!(work);
        let flag = self.0.clone();
        let mut closing = pin!(self.0.wait_for(|closed| *closed));
        poll_fn(|cx| {
            // A waiter that is woken by a shutdown must not be granted what the shutdown has just given up.
            if *flag.borrow() {
                return Poll::Ready(Err(LockError::Shutdown));
            }
            // A request that need not wait does not wait for a shutdown either.
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            match closing.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(Err(LockError::Shutdown)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// Settings of a [`LockClient`].
///
/// Waiters of one key and one process queue in the process, and a lock that is released passes straight to the next of
/// them. These settings bound how long that may go on before other processes get their turn. Then every process that
/// listens for the lock at that moment may have a turn before this one asks again.
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
    store: Arc<dyn DynStore>,
    pace: Pace,
    max_keys: usize,
    max_keys_per_request: usize,
    token_retention: Option<Duration>,
    renew_on: Option<Handle>,
    /// Or why it is none.
    namespace: Result<Namespace, &'static str>,
}

impl LockClientBuilder {
    /// Passes a lock on inside the process at most `times` in a row (default 64; 0: never).
    pub fn handovers(mut self, times: u32) -> Self {
        self.pace.handovers = times;
        self
    }

    /// Passes a lock on inside the process for at most `time` since the store granted it (default 50 ms).
    pub fn handover_time(mut self, time: Duration) -> Self {
        self.pace.handover_time = time.min(FOR_EVER);
        self
    }

    /// Lets new readers join a read hold of the process for `window` since the store granted it (default 5 ms); later ones
    /// ask the store, where waiting writers of other processes are seen.
    pub fn share_window(mut self, window: Duration) -> Self {
        self.pace.share_window = window.min(FOR_EVER);
        self
    }

    /// How many keys the client's requests may hold or wait for at a time (default 262,144). A request for one more fails
    /// with [`LockError::Overloaded`].
    ///
    /// It bounds the memory that callers can make the client use, when they choose the keys. A few keys more are possible
    /// while threads race for the last one.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// How many keys one [`lock_all`](LockClient::lock_all) or [`lock_any`](LockClient::lock_any) may name (default 1024).
    /// A request that names more fails with [`LockError::Invalid`], and takes nothing.
    pub fn max_keys_per_request(mut self, keys: usize) -> Self {
        self.max_keys_per_request = keys;
        self
    }

    /// How long the store keeps a key's counter of fencing tokens after its last use (default 30 days; `None`: for ever, as
    /// Redisson does).
    ///
    /// Counters that are kept for ever are as many as the keys that were ever fenced, and strangers may choose keys. Tokens
    /// rise all the same when a counter is forgotten: without one they follow the server's clock, and a counter is kept
    /// while its tokens are ahead of that clock. Redisson's `getFencedLock` begins at 1 without a counter: where Java
    /// services fence the same keys, choose `None`.
    pub fn token_retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.token_retention = retention.into();
        self
    }

    /// Puts `name` and a colon before the names of all keys and records of this client, so that services, or staging and
    /// production, share one Redis and no lock (default: nothing).
    ///
    /// With `namespace("prod:shop")` the key `lock:order:42` is `prod:shop:lock:order:42` in the store; so is what belongs to
    /// it, such as its record and its channels. Layers, extractors, [`leader`](LockClient::leader), [`once`](LockClient::once) and
    /// [`admin`](LockClient::admin) of the client use the name space too. [`LockKey::name`], logs and errors show the name without
    /// it. A hash tag in a key's name keeps its meaning in a Cluster.
    ///
    /// A Java service shares these locks with Redisson's `nameMapper` that puts the same text before a name:
    /// `map(name) = "prod:shop:" + name`. For a user of Redis with few rights, see
    /// [`AclRules::namespace`](crate::AclRules::namespace).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let shop = LockClient::builder(store.clone()).namespace("prod:shop").build();
    /// let stock = LockClient::builder(store).namespace("prod:stock").build();
    /// let (one, other) = (shop.lock("lock:nightly").await?, stock.lock("lock:nightly").await?);
    /// assert_eq!(one.key().as_str(), "prod:shop:lock:nightly");
    /// # one.release().await?; other.release().await
    /// # }
    /// ```
    ///
    /// [`LockKey::name`]: crate::LockKey::name
    pub fn namespace(mut self, name: impl AsRef<str>) -> Self {
        self.namespace = Namespace::new(name.as_ref());
        self
    }

    /// Renews holds on `runtime` (default: where the store says, as `RedisStore` does; else on that
    /// of the caller that first takes a lock).
    ///
    /// It is for a [`MemoryStore`](crate::MemoryStore) whose users may keep all workers of their runtime busy for longer
    /// than a lease: a runtime on a thread of its own renews meanwhile. `runtime` must be driven for as long as
    /// locks are held.
    pub fn renew_on(mut self, runtime: Handle) -> Self {
        self.renew_on = Some(runtime);
        self
    }

    /// Makes the client.
    ///
    /// # Panics
    ///
    /// If the [name space](Self::namespace) is empty, longer than 64 bytes, ends in a colon, or has other characters than
    /// letters, digits and `-._~:/`.
    pub fn build(self) -> LockClient {
        telemetry::describe();
        let namespace = self.namespace.unwrap_or_else(|reason| {
            panic!("this `LockClient` has no proper `namespace`: {reason}");
        });
        LockClient {
            inner: Arc::new(Inner {
                id: new_id(),
                grants: AtomicU64::new(1),
                queues: Queues::new(self.store.clone(), self.pace, self.max_keys, self.renew_on),
                store: self.store,
                closed: watch::Sender::new(false),
                token_retention: self.token_retention,
                max_keys_per_request: self.max_keys_per_request,
                namespace,
            }),
        }
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// Random, and of another version than Redisson's ids: a script can tell whose a hold is.
fn new_id() -> Uuid {
    uuid::Builder::from_custom_bytes(Uuid::new_v4().into_bytes()).into_uuid()
}
