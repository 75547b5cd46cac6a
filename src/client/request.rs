//! A request for locks, and its settings.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::LockClient;
use super::layer_locks;
use super::ticket::Ticket;
use super::wait::Wait;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::limits::{self, FOR_EVER};
use crate::lock::{Lease, LockKey, LockMode, Owner, ResourceKey};
use crate::release::Share;
use crate::table::Terms;
use crate::telemetry::{LockEventKind, Route, Waiting};

mod acquisition;
mod refusal;

use acquisition::guard;
pub(crate) use acquisition::{Acquisition, Started};

/// How long a request waits, unless it says so. It is longer than the lease of a holder that has died: another request gets the lock
/// then.
const WAIT: Duration = Duration::from_secs(45);

/// A request for a lock. Await it, or call [`LockRequest::acquire`].
///
/// Defaults: the mode is `Reentrant` (`Write` for a [`Resource`](crate::Resource) that is read and written), the lease is 30 s and
/// renewed, the wait is 45 s at most, the owner is a new one, the hold has no fencing token and no longest time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use std::time::Duration;
/// use tower_distributed_lock::{Lease, LockMode};
///
/// let guard = locks
///     .lock("lock:account:42")
///     .mode(LockMode::Fair)
///     .wait(Duration::from_secs(5))
///     .lease(Lease::Renewed(Duration::from_secs(10)))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct LockRequest {
    client: LockClient,
    targets: Targets,
    /// `None`: the mode of the target's resource, else `Reentrant`.
    mode: Option<LockMode>,
    terms: Terms,
    /// Whether the caller has chosen the wait.
    has_wait: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Targets {
    One(ResourceKey),
    All(Vec<ResourceKey>),
    Any(Vec<ResourceKey>),
}

impl LockRequest {
    pub(super) fn new(client: LockClient, targets: Targets) -> Self {
        Self {
            client,
            targets,
            mode: None,
            terms: Terms {
                mode: LockMode::Reentrant,
                owner: None,
                lease: Lease::default(),
                max_hold: None,
                fenced: false,
                max_waiters: Some(1024),
                wait: WAIT,
                route: Route::default(),
            },
            has_wait: false,
        }
    }

    /// Sets the mode of the hold. The default is [`LockMode::Reentrant`], and [`LockMode::Write`] for a
    /// [`Resource`](crate::Resource) that is read and written.
    #[inline]
    pub fn mode(mut self, mode: LockMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Takes one of `limit` permits: at most so many hold the key at a time, over all processes. The same as
    /// [`mode`](Self::mode) with [`LockMode::permits`], which says more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// # use tower_distributed_lock::{LockClient, MemoryStore};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// let first = locks.lock("upstream:mail").permits(2).await?;
    /// let second = locks.lock("upstream:mail").permits(2).await?; // at the same time
    /// # drop(first); second.release().await
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    pub fn permits(self, limit: u32) -> Self {
        self.mode(LockMode::permits(limit))
    }

    /// Sets the label of its measurements, in place of a route (default `none`). Each label is one time series per metric, so
    /// choose a constant of the program, such as `"nightly"`, and never input of a client.
    pub fn label(self, label: &'static str) -> Self {
        self.route(Route::named(label))
    }

    /// Sets how long to wait in all: in the queue of the process, for the store, for the network. Zero tries once and leaves
    /// nothing; that attempt takes at most 2 s.
    #[inline]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = wait.min(FOR_EVER);
        self.has_wait = true;
        self
    }

    /// Limits the request of a stranger where the program has not: how long it waits, and how long it holds, which is never shorter
    /// than its lease.
    pub(crate) fn or_limits(mut self, wait: Duration, max_hold: Duration) -> Self {
        let max_hold = max_hold.max(self.terms.lease.duration());
        self.terms.max_hold.get_or_insert(max_hold);
        match self.has_wait {
            true => self,
            false => self.wait(wait),
        }
    }

    /// Sets how long the hold lives without renewal, and whether it is renewed.
    #[inline]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.terms.lease = limits::bounded(lease);
        self
    }

    /// Sets how long the hold is renewed after its grant, even if the guard still exists: then it expires, and is lost.
    ///
    /// A request that joins a hold takes its limit as it is. So an inner guard of an owner neither lengthens nor shortens the longest
    /// hold of the outer one, also after the end of that guard. Readers of this process share a hold only if they ask for the same
    /// longest hold, of which at least half is left.
    #[inline]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.terms.max_hold = Some(max_hold.min(FOR_EVER));
        self
    }

    /// Sets the owner. An owner joins a hold that it has already, without asking the store. Its requests for one key ask one after the
    /// other, so one that is not polled delays the later ones of the same owner, and no others.
    #[inline]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.terms.owner = Some(owner.clone());
        self
    }

    /// Sets how many callers of this process may wait for the same key at a time (default 1024); one more fails with
    /// [`LockError::Overloaded`].
    #[inline]
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.terms.max_waiters = Some(max_waiters);
        self
    }

    /// Requests a fencing token with the grant of every key that is asked for in an exclusive mode; of several keys, one is enough.
    #[inline]
    pub fn fenced(mut self) -> Self {
        self.terms.fenced = true;
        self
    }

    /// Requests fencing tokens if there are any for its modes.
    pub(crate) fn fenced_if_supported(self) -> Self {
        let is_supported = |mode: LockMode| self.client.supports(mode, mode.is_exclusive()).is_ok();
        match self.has_exclusive() && self.modes().all(is_supported) {
            true => self.fenced(),
            false => self,
        }
    }

    /// Sets the route of its measurements.
    #[inline]
    pub(crate) fn route(mut self, route: Route) -> Self {
        self.terms.route = route;
        self
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// * [`LockError::Busy`] when the wait is over; [`LockError::Overloaded`] when too many wait already.
    /// * [`LockError::Unavailable`] when the store cannot be reached or does not answer within the wait.
    /// * [`LockError::Upgrade`] when the owner holds the key for reading and asks to write; [`LockError::Lost`] when the owner
    ///   has lost the hold that it would join.
    /// * [`LockError::Conflict`] when the key has other data or another kind of lock; [`LockError::Unsupported`] and
    ///   [`LockError::Invalid`] when the request must be changed; [`LockError::Shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing: a hold that the store has granted, or may still grant, is withdrawn in
    /// the background as soon as the store has answered.
    pub async fn acquire(mut self) -> Result<LockGuard, LockError> {
        // In a scope of its own, so that the result takes no room in the future of the wait.
        let acquisition = {
            match self.start().await? {
                Started::Granted(guard) => return Ok(guard),
                Started::Waits(acquisition) => acquisition,
            }
        };
        acquisition.finish().await
    }

    /// Begins to take the lock. It is granted already if this process can share it, or if a store that answers at once grants
    /// it.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// That of [`acquire`](Self::acquire), also for the result.
    pub(crate) async fn start(&mut self) -> Result<Started<LockGuard, Acquisition<'_>>, LockError> {
        self.check()?;
        // A free lock in memory is granted without a wait, and a loop over it must not starve the other tasks of the executor.
        tokio::task::coop::consume_budget().await;
        self.begin()
    }

    fn begin(&mut self) -> Result<Started<LockGuard, Acquisition<'_>>, LockError> {
        let now = Instant::now();
        let waiting = self.observed(now);
        let wait = Wait::new(self.terms.wait, now);
        self.terms.mode = self.default_mode();
        if wait.is_one_try() {
            self.terms.max_waiters = None;
        }
        let request = &*self;
        let mut ticket = Ticket::new(&request.client.inner.core, request.terms.route, now);
        let entered = match &request.targets {
            Targets::One(target) => request.enter(&mut ticket, target, wait),
            Targets::All(_) | Targets::Any(_) => Ok(None),
        };
        match entered {
            Ok(Some(share)) => Ok(Started::Granted(guard(share).observed(waiting))),
            Ok(None) => {
                let keys = request.targets().iter().map(|target| target.key());
                waiting.wait_for(keys.filter_map(|key| ticket.core.table.span_of(key)));
                Ok(Started::Waits(Acquisition {
                    ticket,
                    request,
                    wait,
                    now,
                    waiting,
                }))
            }
            Err(error) => {
                drop(ticket);
                request.refused(waiting, &error, now);
                Err(error)
            }
        }
    }

    /// Comes in for one key. A store that answers at once is asked, too.
    fn enter<'a>(
        &'a self,
        ticket: &mut Ticket<'a>,
        target: &'a ResourceKey,
        wait: Wait,
    ) -> Result<Option<Share>, LockError> {
        match ticket.enter(target.key(), &self.terms)? {
            None if ticket.asks() && ticket.core.store.answers_at_once() => ticket.ask_now(wait),
            entered => Ok(entered),
        }
    }

    /// Tries once, and takes the lock if it is free; `None` if it is in use. The same as [`acquire`](Self::acquire) with a
    /// [`wait`](Self::wait) of zero, without the error for a busy lock.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), except [`LockError::Busy`].
    ///
    /// # Cancel safety
    ///
    /// That of [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(LockError::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The observation of its wait.
    fn observed(&self, now: Instant) -> Waiting {
        let targets = self.targets();
        let database = self.client.inner.core.store.capabilities.for_traces();
        let (route, mode) = (&self.terms.route, self.mode_name());
        let keys = || targets.iter().map(|target| target.key()).collect();
        Waiting::begin(route, mode, now, database, keys)
    }

    /// Reports the end of its wait.
    pub(super) fn refused(&self, waiting: Waiting, error: &LockError, began: Instant) {
        waiting.refused(error);
        if let Some(first) = self.targets().first() {
            let mode = first.mode_in(self.mode);
            let mode = self.modes().all(|other| other == mode).then_some(mode);
            let refused = || LockEventKind::Refused {
                error: error.clone(),
                waited: began.elapsed(),
            };
            let events = self.client.event_reporter();
            events.tell(first.key(), mode, &self.terms.route, refused);
        }
    }

    fn targets(&self) -> &[ResourceKey] {
        match &self.targets {
            Targets::One(target) => std::slice::from_ref(target),
            Targets::All(targets) | Targets::Any(targets) => targets,
        }
    }

    fn modes(&self) -> impl Iterator<Item = LockMode> {
        let targets = self.targets().iter();
        targets.map(|target| target.mode_in(self.mode))
    }

    /// The mode of the first target.
    fn default_mode(&self) -> LockMode {
        self.modes().next().unwrap_or(LockMode::Reentrant)
    }

    /// The mode, for labels and logs.
    fn mode_name(&self) -> &'static str {
        let first = self.default_mode();
        match self.modes().all(|mode| mode == first) {
            true => first.as_str(),
            false => "mixed",
        }
    }

    /// Whether every key is asked for in an exclusive mode.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.modes().all(LockMode::is_exclusive)
    }

    /// Whether a key is asked for in an exclusive mode.
    pub(crate) fn has_exclusive(&self) -> bool {
        self.modes().any(LockMode::is_exclusive)
    }

    /// Whether all that it takes are permits.
    pub(crate) fn takes_permits(&self) -> bool {
        self.modes().all(LockMode::is_permit)
    }

    /// Whether every key is asked for in a mode that only reads.
    pub(crate) fn is_read(&self) -> bool {
        self.modes().all(|mode| mode == LockMode::Read)
    }

    pub(crate) fn client(&self) -> &LockClient {
        &self.client
    }

    /// The key of work that one process does at a time.
    ///
    /// # Errors
    ///
    /// `Invalid` if several could do it at once.
    pub(crate) fn sole_key(&self) -> Result<&LockKey, LockError> {
        match &self.targets {
            Targets::One(target) if self.terms.owner.is_none() && self.is_exclusive() => {
                Ok(target.key())
            }
            _ => Err(LockError::invalid(
                "work that one process does at a time has one name, an exclusive mode, and a hold that no other request joins: name one \
                 key, and no owner",
            )),
        }
    }

    /// The first key.
    pub(crate) fn key(&self) -> &LockKey {
        self.targets()[0].key()
    }

    fn check(&self) -> Result<(), LockError> {
        self.client.ready()?;
        limits::check(self.terms.lease, self.terms.max_hold).map_err(LockError::invalid)?;
        if self.targets().len() > self.client.max_keys_per_request() {
            return Err(LockError::invalid(
                "the request names too many keys: name fewer, or see `max_keys_per_request`",
            ));
        }
        if self.targets().is_empty() {
            return Err(LockError::invalid(
                "there is no key to lock: name at least one",
            ));
        }
        if self.terms.fenced && !self.has_exclusive() {
            return Err(LockError::invalid(
                "a read hold or a permit has no fencing token: ask for one with an exclusive mode",
            ));
        }
        let mut targets = self.targets().iter();
        targets.try_for_each(|target| self.check_one(target))
    }

    fn check_one(&self, target: &ResourceKey) -> Result<(), LockError> {
        let mode = target.mode_in(self.mode);
        self.client
            .namespace()
            .check(target.key())
            .map_err(LockError::invalid)?;
        if let Some(mismatch) = target.mismatch(mode) {
            return Err(LockError::invalid(mismatch));
        }
        if self.terms.owner.is_none() && !self.terms.wait.is_zero() {
            layer_locks::check(self.client.id(), target.key(), mode)?;
        }
        let fenced = self.terms.fenced && mode.is_exclusive();
        let supported = self.client.supports(mode, fenced);
        supported
            .and_then(|()| self.client.inner.core.store.partition(target.key()))
            .map(drop)
            .map_err(LockError::Unsupported)
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
