//! The lock client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::audit::Audit;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::guard::LockGuard;
use crate::keeper;
use crate::limits::{CONFIRMATION, FOR_EVER};
use crate::lock::{LockKey, LockMode, Namespace, ResourceKey};
use crate::release::Core;
use crate::store::{Asked, DynInspect, Feature, LockStore, Unsupported};
use crate::sync::call_outside;
pub use crate::table::{HoldSnapshot, KeySnapshot, WaiterSnapshot};
use crate::telemetry::{self, Events};

mod acquire;
mod all;
mod announcement;
mod any;
mod builder;
mod events;
mod layer_locks;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;
mod ticket;
mod wait;

use announcement::Announcement;
pub use builder::LockClientBuilder;
pub use events::{LockEvent, LockEventKind, LockEvents};
pub(crate) use layer_locks::{LayerLocks, moved};
pub use request::LockRequest;
pub(crate) use request::Started;
use request::Targets;
pub use snapshot::Snapshot;

/// Takes locks in a store. Cheap to clone; clones are the same client.
///
/// A client has background tasks: one task renews holds, others clean up after dropped guards and cancelled requests. They start
/// when they are first needed, and end with the last clone and the last guard.
///
/// # A runtime whose workers are all busy
///
/// Handlers that compute, or block, on all workers of a runtime stop every other task. With a `RedisStore` (and a quorum of
/// those) holds are renewed nevertheless, on a thread and a connection of the store: the locks are held as long as the process
/// lives, and releases are confirmed afterwards. [`max_hold`] ends the hold of a handler that never returns. With a
/// [`MemoryStore`] renewals need a free worker, unless [`runtime`] names another one: a hold that is not renewed in time is
/// lost at its deadline, and its release fails.
///
/// All other work of a client waits for a worker. A guard that is dropped meanwhile is not renewed any more, and is released late
/// or ends with its lease. A waiter in a fair queue loses its place after [`WAITER_LIVENESS`](crate::store::WAITER_LIVENESS).
///
/// [`MemoryStore`]: crate::MemoryStore
/// [`max_hold`]: LockRequest::max_hold
/// [`runtime`]: LockClientBuilder::runtime
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
    core: Arc<Core>,
    /// The handlers that run to their end, also without their client.
    tasks: TaskTracker,
    max_keys_per_request: usize,
    namespace: Namespace,
    /// `None` unless the client was built so.
    announcement: Option<Announcement>,
}

/// A client of this store with the default settings.
impl<S: LockStore> From<S> for LockClient {
    fn from(store: S) -> Self {
        Self::new(store)
    }
}

impl From<&LockClient> for LockClient {
    fn from(client: &LockClient) -> Self {
        client.clone()
    }
}

impl LockClient {
    /// A client of `store` with default settings.
    pub fn new(store: impl LockStore) -> Self {
        Self::builder(store).build()
    }

    /// A client of `store`, to be configured.
    pub fn builder(store: impl LockStore) -> LockClientBuilder {
        LockClientBuilder::new(store)
    }

    /// The id of this client: the first part of every hold id in the store.
    pub fn id(&self) -> Uuid {
        self.inner.core.id
    }

    /// Makes a request for the lock on `key`: a name, or one thing of a [`Resource`](crate::Resource). Await it, or configure it
    /// first.
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
    /// A string is used **as it is**. Compose a name with input of clients by [`Resource::id`](crate::Resource::id) or
    /// [`LockKey::from_parts`], which escape it: in `format!("order:{id}")` an `id` such as `1:refund` names another lock.
    ///
    /// Inside a handler, or a body, whose layer holds the key, another owner would wait for its own request. The client then fails with
    /// [`LockError::Invalid`] at once, unless the program moved the work to another task, or it does not wait.
    pub fn lock(&self, key: impl Into<ResourceKey>) -> LockRequest {
        LockRequest::new(self.clone(), Targets::One(self.target(key)))
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
    pub async fn try_lock(
        &self,
        key: impl Into<ResourceKey>,
    ) -> Result<Option<LockGuard>, LockError> {
        self.lock(key).try_acquire().await
    }

    /// Makes a request for the locks on all `keys`: all or none.
    ///
    /// The request asks for all keys at once. If one of them is in use, it waits for that key and holds none of the others
    /// meanwhile; then it asks for the rest. After a few such rounds it takes the keys one after the other, always in the same
    /// order, and holds none for longer than a second while it waits for the next. So requests for the same keys never deadlock. But where
    /// each of several keys has a queue that is longer than a second all the time, such a request may wait in vain, because holding one
    /// while it waits for another would stop the others. A key that is named twice is taken once.
    /// A key may come with a mode of its own.
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
        T: Into<ResourceKey>,
    {
        let targets = keys.into_iter().map(|key| self.target(key));
        LockRequest::new(self.clone(), Targets::All(targets.collect()))
    }

    /// Makes a request for the lock on one of `keys`: the first that is or becomes free. [`LockGuard::key`] returns which.
    ///
    /// It is for a resource that is split into segments to reduce contention, such as ten counters that together are one stock.
    /// Requests begin at different keys, so that the segments are used equally. A request that waits is in the queue of every
    /// key, behind earlier requests of this process, and [`max_waiters`](LockRequest::max_waiters) counts it there; in `Fair` mode
    /// it stands in the store's queue of every key. A key may come with a mode of its own. A key that is named twice counts twice in
    /// [`max_keys_per_request`](crate::client::LockClientBuilder::max_keys_per_request).
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
        T: Into<ResourceKey>,
    {
        let targets = keys.into_iter().map(|key| self.target(key));
        LockRequest::new(self.clone(), Targets::Any(targets.collect()))
    }

    /// Ends the client: new and waiting requests fail with [`LockError::Shutdown`], and every hold is released, except those
    /// whose [least time](LockGuard::hold_at_least) is not over.
    ///
    /// The locks of guards that still exist are lost. Call it when the server accepts no more requests, and before the runtime ends:
    /// a hold that is not released ends with its lease.
    ///
    /// While handlers with [`OnCancel::RunToCompletion`] run, it waits for them, for all but the last second of `timeout`, and
    /// every hold is kept. They get no further locks. A limit of a second or less gives them no time.
    ///
    /// [`OnCancel::RunToCompletion`]: crate::OnCancel::RunToCompletion
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if not everything was released within `timeout`. The remaining releases continue in the
    /// background as long as the runtime lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not undo the shutdown. If it was waiting for handlers, every hold is lost then, as at its end.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), LockError> {
        let core = &self.inner.core;
        call_outside("a waker", || core.closing.cancel());
        core.table
            .close()
            .1
            .into_iter()
            .for_each(|out| core.run(out));
        self.inner.tasks.close();
        let until = Instant::now() + timeout.min(FOR_EVER);
        {
            // Also if this future is dropped meanwhile. What goes on afterwards goes on without its lock.
            let _abandoned = AbandonOnDrop(core);
            // The releases need the rest of the time.
            let handlers = self.inner.tasks.wait();
            drop(timeout_at(until - CONFIRMATION.min(timeout), handlers).await);
        }
        let done = async {
            core.spawner.drained().await;
            if let Some(announcement) = &self.inner.announcement {
                announcement.end().await;
            }
            core.store.capabilities.ended().await;
        };
        timeout_at(until, done)
            .await
            .map_err(|elapsed| StoreError::new(StoreErrorKind::Unanswered, elapsed).into())
    }

    /// Audits the deployment of the store: which promises hold on it, and what weakens them. For the start of a service, and for
    /// its operators.
    ///
    /// It takes no lock and changes nothing. Settings that the user may not read are among the warnings.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the questions change nothing. Those that are under way continue in the background.
    pub async fn audit(&self) -> Result<Audit, LockError> {
        let audit = self.asked(self.inner.core.store.audit()).await?;
        telemetry::audited(&audit);
        Ok(audit)
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
        self.asked(self.inner.core.store.renew(Vec::new())).await?;
        Ok(began.elapsed())
    }

    /// Whether the client was shut down. Requests that it refuses then fail with [`LockError::Shutdown`].
    pub fn is_shut_down(&self) -> bool {
        self.inner.core.closing.is_cancelled()
    }

    /// The number of keys that this client holds or waits for now.
    pub fn keys_in_use(&self) -> usize {
        self.inner.core.table.len()
    }

    /// How many keys one request may name.
    pub(crate) fn max_keys_per_request(&self) -> usize {
        self.inner.max_keys_per_request
    }

    /// Whether the store supports such requests. The error text is for the caller.
    pub(crate) fn supports(&self, mode: LockMode, fenced: bool) -> Result<(), Unsupported> {
        let capabilities = &self.inner.core.store.capabilities;
        capabilities.check(Feature::Mode(mode))?;
        match fenced {
            true => capabilities.check(Feature::Fencing),
            false => Ok(()),
        }
    }

    /// What a caller asks for, in the client's name space.
    fn target(&self, key: impl Into<ResourceKey>) -> ResourceKey {
        let target: ResourceKey = key.into();
        target.within(&self.inner.namespace)
    }

    /// The key in the client's name space, unless it is in another.
    pub(crate) fn named(&self, key: LockKey) -> LockKey {
        self.inner.namespace.key(key)
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// The inspector of the store.
    pub(crate) fn inspector(&self) -> Result<Arc<dyn DynInspect>, Unsupported> {
        self.inner.core.store.capabilities.inspector().cloned()
    }

    /// Whether the store keeps records.
    pub(crate) fn keeps_records(&self) -> bool {
        let capabilities = &self.inner.core.store.capabilities;
        capabilities.check(Feature::Records).is_ok()
    }

    /// The record under `key`.
    pub(crate) async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, LockError> {
        let key = self.named(key.clone());
        self.namespace().check(&key).map_err(LockError::invalid)?;
        Ok(self.asked(self.inner.core.store.record(key)).await?)
    }

    /// Drives a question to its end, even if its caller is dropped, as the contract of stores requires.
    async fn asked<T: Send + 'static>(&self, asked: Asked<T>) -> Result<T, StoreError> {
        let answer = match asked {
            Asked::Now(answer) => return answer,
            Asked::Later(answer) => answer,
        };
        let ready = self
            .ready()
            .map_err(|error| StoreError::new(StoreErrorKind::Unreachable, error));
        ready?;
        self.inner.core.kept(answer).await
    }

    /// Whether background work can run.
    fn ready(&self) -> Result<(), LockError> {
        let core = &self.inner.core;
        let runtime = || core.store.capabilities.runtime();
        core.spawner
            .ready(runtime, || keeper::keep(Arc::downgrade(core)))?;
        if let Some(announcement) = &self.inner.announcement {
            announcement.begin(core);
        }
        Ok(())
    }

    /// Whether tasks for its requests and holds run.
    #[cfg(all(test, shuttle))]
    pub(crate) fn has_tasks(&self) -> bool {
        !self.inner.core.spawner.tracker.is_empty()
    }

    /// The tasks for which a shutdown waits.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }

    /// Reports what happens to its locks.
    pub(crate) fn event_reporter(&self) -> &Events {
        &self.inner.core.events
    }
}

/// Gives up every hold when it is dropped.
struct AbandonOnDrop<'a>(&'a Arc<Core>);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon_all();
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.inner.core.id)
            .finish_non_exhaustive()
    }
}
