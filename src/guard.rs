//! Guards and handles of held locks.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::select_all;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::Span;

use crate::cleanup::{PATIENCE, late};
use crate::error::LockError;
use crate::lock::{FencingToken, LockKey, LockMode};
use crate::queue::{Share, ShareRelease, Shares};
use crate::store::Record;
use crate::telemetry::{Holding, Labels, Waiting};
use crate::watchdog::LiveHold;

/// A held lock: one key, or several at once.
///
/// As long as the guard lives, the lock is renewed, unless its lease is fixed or its longest hold is over. Dropping the
/// guard releases the lock in the background; it never blocks, and also works outside a runtime. [`LockGuard::release`]
/// releases it and returns whether it was held until then.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// # async fn import() {}
/// let guard = locks.lock("lock:import").await?;
/// tokio::select! {
///     () = import() => guard.release().await?, // an error: the lock was not held until now
///     () = guard.lost() => eprintln!("cut short: another may import now"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a guard that is dropped releases its lock at once"]
pub struct LockGuard {
    /// At least one.
    shares: Shares,
    handles: Handles,
    /// `None` if nothing observes it.
    holding: Option<Box<Holding>>,
}

impl LockGuard {
    /// `shares`: at least one.
    pub(crate) fn new(shares: impl Into<Shares>) -> Self {
        Self {
            shares: shares.into(),
            handles: Handles::default(),
            holding: None,
        }
    }

    /// The same, of which the store keeps the holds until `until` at least, also without this process.
    ///
    /// # Errors
    ///
    /// `Unavailable`, or `Lost`: then nothing is held.
    pub(crate) async fn kept_until(self, until: Instant) -> Result<Self, LockError> {
        self.shares.keep_until(until).await?;
        Ok(self)
    }

    /// The same, with the observation of its wait.
    pub(crate) fn observed(mut self, waiting: Waiting) -> Self {
        let holding = waiting.granted(self.shares.iter().map(Share::live));
        self.holding = holding.map(Box::new);
        self
    }

    /// The span of the work under the lock.
    pub(crate) fn span(&self) -> Span {
        let holding = self.holding.as_deref();
        holding.map_or_else(Span::none, Holding::span)
    }

    /// The labels of its measurements; `None` if it is not observed.
    pub(crate) fn labels(&self) -> Option<Labels> {
        self.holding.as_deref().map(Holding::labels)
    }

    /// The held key; the first in order if there are several.
    pub fn key(&self) -> &LockKey {
        &self.shares[0].live().hold.key
    }

    /// Every held key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.shares.iter().map(|share| &share.live().hold.key)
    }

    /// The mode of the hold on [`LockGuard::key`].
    ///
    /// Re-entry joins a hold that the owner has already, so this may be the mode of an outer acquisition.
    pub fn mode(&self) -> LockMode {
        self.shares[0].live().hold.mode
    }

    /// The token of this grant of [`LockGuard::key`]; `None` unless it was requested. A guard of several keys has
    /// [`fencing_tokens`](Self::fencing_tokens).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.shares[0].token()
    }

    /// Every key with the token of its grant, in order; `None` unless it was requested. A token protects the resource of its
    /// own key only.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&LockKey, Option<FencingToken>)> {
        let shares = self.shares.iter();
        shares.map(|share| (&share.live().hold.key, share.token()))
    }

    /// The time until which the lock is certainly held without a renewal, by this process's clock; the earliest of all keys.
    pub fn deadline(&self) -> Instant {
        let deadlines = self.shares.iter().map(Tenure::of);
        let earliest = deadlines.map(|tenure| tenure.deadline()).min();
        earliest.expect("a guard holds at least one key")
    }

    /// Whether any of its keys is lost: its deadline passed, or the store answered that the hold is gone.
    pub fn is_lost(&self) -> bool {
        self.shares.iter().any(|share| Tenure::of(share).is_lost())
    }

    /// Waits until any of its keys is lost; this may never return while the guard is held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        match &*self.shares {
            [only] => Tenure::of(only).lost().await,
            shares => any_lost(shares.iter().map(Tenure::of)).await,
        }
    }

    /// A cheap observer, which can outlive the guard and be passed to other tasks.
    pub fn handle(&self) -> LockHandle {
        LockHandle {
            observed: self.handles.of(&self.shares),
        }
    }

    /// Releases the lock, and confirms that it was held until now.
    ///
    /// `Ok` is a statement about the past: from the grant until this release, the store carried this hold without a gap, so
    /// no work of another confirmed holder overlapped. It costs one round trip. A hold that others share continues: this
    /// asks the store about it, and callers that ask at the same time share one question.
    ///
    /// This waits for the store for two seconds at most.
    ///
    /// # Errors
    ///
    /// * [`LockError::Lost`] if the store did not carry the hold any more, or its longest hold was over.
    /// * [`LockError::Unavailable`] if the store did not answer within two seconds, or refused: nothing is confirmed. The
    ///   release continues in the background until the lease is over.
    ///
    /// # Cancel safety
    ///
    /// The first poll begins the release; if the future is dropped, the release continues in the background.
    pub async fn release(self) -> Result<(), LockError> {
        self.end(None).in_time().await
    }
}

impl LockGuard {
    /// Drops the guard of a lock under which no work was done. Telemetry does not count it as a hold.
    pub(crate) fn discard(mut self) {
        if let Some(holding) = self.holding.take() {
            (*holding).discard();
        }
    }

    /// Releases its one key. The store keeps `record` in the same step if the key was held until now.
    pub(crate) async fn release_recording(self, record: Record) -> Result<(), LockError> {
        self.end(Some(record)).in_time().await
    }

    /// Begins the release. With a `record`, which the store keeps in the same step, the guard has one key.
    pub(crate) fn end(self, record: Option<Record>) -> Releasing {
        let Self {
            shares,
            handles,
            mut holding,
        } = self;
        if let Some(holding) = &mut holding {
            holding.begin_release();
        }
        Releasing {
            release: shares.release(record),
            handles,
            holding,
        }
    }
}

/// The release of a guard, without a limit of time. If it is dropped, the release continues in the background.
pub(crate) struct Releasing {
    release: ShareRelease,
    handles: Handles,
    holding: Option<Box<Holding>>,
}

impl Releasing {
    /// Waits for the end up to the time limit of a caller.
    async fn in_time(mut self) -> Result<(), LockError> {
        // Most stores in memory have answered. A timer would read the clock.
        if let Some(released) = (&mut self).now_or_never() {
            return released;
        }
        let released = timeout(PATIENCE, &mut self).await;
        released.unwrap_or_else(|_| {
            let released = Err(match self.release.is_lost() {
                true => LockError::Lost,
                false => late().into(),
            });
            self.released(&released);
            released
        })
    }

    fn released(&mut self, released: &Result<(), LockError>) {
        if let Some(holding) = self.holding.take() {
            holding.released(released);
        }
        self.handles.released(released);
    }
}

impl Future for Releasing {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let released = ready!(Pin::new(&mut self.release).poll(cx));
        self.released(&released);
        Poll::Ready(released)
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys().collect::<Vec<_>>())
            .field("mode", &self.mode())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// Observes a lock that a guard holds, such as the one that the layer holds around a request.
///
/// It keeps nothing alive: only the guard decides about the release. The observation ends with that guard, even if the hold
/// continues for others that share it.
///
/// Work in another task stops when the lock is no longer held:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::Ended;
///
/// let guard = locks.lock("lock:import").await?;
/// let handle = guard.handle();
/// let watcher = tokio::spawn(async move { handle.ended().await });
/// guard.release().await?;
/// assert_eq!(watcher.await?, Ended::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockHandle {
    observed: Arc<GuardView>,
}

/// How a guard's share in a lock ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The guard was dropped, or released without a known loss. [`LockGuard::release`] returns to its caller whether that
    /// was confirmed.
    Released,
    /// The lock was lost before, or its release found it lost.
    Lost,
}

impl LockHandle {
    /// The first held key.
    pub fn key(&self) -> &LockKey {
        &self.observed.tenures[0].live.hold.key
    }

    /// Every held key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        let tenures = self.observed.tenures.iter();
        tenures.map(|tenure| &tenure.live.hold.key)
    }

    /// The mode of the hold on [`LockHandle::key`].
    pub fn mode(&self) -> LockMode {
        self.observed.tenures[0].live.hold.mode
    }

    /// The token of the grant of [`LockHandle::key`]; `None` unless it was requested. A lock on several keys has
    /// [`fencing_tokens`](Self::fencing_tokens).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.observed.tenures[0].token
    }

    /// Every key with the token of its grant, in order; `None` unless it was requested. A token protects the resource of its
    /// own key only.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&LockKey, Option<FencingToken>)> {
        let tenures = self.observed.tenures.iter();
        tenures.map(|tenure| (&tenure.live.hold.key, tenure.token))
    }

    /// The time until which the lock is certainly held without a renewal, by this process's clock; the earliest of all keys.
    /// It has no meaning after the end of the guard.
    pub fn deadline(&self) -> Instant {
        let earliest = self.observed.tenures.iter().map(Tenure::deadline).min();
        earliest.expect("a guard holds at least one key")
    }

    /// Whether another owner that asks for `key` in `mode` must wait for this lock. The end of another hold frees one of
    /// several permits.
    pub(crate) fn excludes(&self, key: &LockKey, mode: LockMode) -> bool {
        let excludes = |mode: LockMode| mode.is_exclusive() || mode == LockMode::permits(1);
        self.observed.tenures.iter().any(|tenure| {
            let hold = &tenure.live.hold;
            hold.key == *key && (excludes(hold.mode) || excludes(mode)) && !tenure.live.has_ended()
        })
    }

    /// Whether the lock was lost. A lock that was released is not lost.
    pub fn is_lost(&self) -> bool {
        match self.observed.end() {
            Some(end) => end == Ended::Lost,
            None => self.observed.tenures.iter().any(Tenure::is_lost),
        }
    }

    /// Waits until the lock is lost. It does not return after the lock was released: in a task that may outlive the guard,
    /// wait for [`LockHandle::ended`] instead.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        match self.ended().await {
            Ended::Lost => {}
            Ended::Released => std::future::pending().await,
        }
    }

    /// Waits for the end of the guard, and returns whether that was a loss. It returns at once when the lock is lost, even
    /// while its guard still exists.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ended(&self) -> Ended {
        let observed = &self.observed;
        let mut ended = pin!(observed.ended.notified());
        // Registered before the state is read, so that no end is missed between the two.
        ended.as_mut().enable();
        if let Some(end) = observed.end() {
            return end;
        }
        let lost = any_lost(observed.tenures.iter().cloned());
        tokio::select! {
            biased; // without chance, a simulation replays
            () = ended => observed.end().unwrap_or(Ended::Released),
            () = lost => Ended::Lost,
        }
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("key", self.key())
            .field("mode", &self.mode())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// The state that the handles of one guard share, created with the first of them. It is dropped with the guard, which ends
/// their observation.
#[derive(Default)]
struct Handles(OnceLock<Arc<GuardView>>);

impl Handles {
    fn of(&self, shares: &[Share]) -> Arc<GuardView> {
        let observed = || GuardView {
            tenures: shares.iter().map(Tenure::of).collect(),
            end: OnceLock::new(),
            ended: Notify::new(),
        };
        self.0.get_or_init(|| Arc::new(observed())).clone()
    }

    /// The state, if a handle exists that may still read it.
    fn watched(&mut self) -> Option<&GuardView> {
        let observed = self.0.get_mut()?;
        Arc::get_mut(observed).is_none().then_some(&*observed)
    }

    fn released(&mut self, released: &Result<(), LockError>) {
        if let Some(observed) = self.watched() {
            observed.finish(match released {
                Err(LockError::Lost) => Ended::Lost,
                _ => Ended::Released,
            });
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        if let Some(observed) = self.watched()
            && observed.end().is_none()
        {
            let is_lost = observed.tenures.iter().any(Tenure::is_lost);
            observed.finish(match is_lost {
                true => Ended::Lost,
                false => Ended::Released,
            });
        }
    }
}

/// A guard, as its handles see it.
struct GuardView {
    tenures: SmallVec<[Tenure; 1]>,
    /// Empty until the guard ends.
    end: OnceLock<Ended>,
    /// Notified when the guard has ended.
    ended: Notify,
}

impl GuardView {
    fn end(&self) -> Option<Ended> {
        self.end.get().copied()
    }

    fn finish(&self, ended: Ended) {
        // Only the guard ends it, and a guard ends once.
        if self.end.set(ended).is_ok() {
            self.ended.notify_waiters();
        }
    }
}

/// A guard's share in one hold.
#[derive(Clone)]
struct Tenure {
    live: Arc<LiveHold>,
    token: Option<FencingToken>,
    limit: Option<Instant>,
}

impl Tenure {
    fn of(share: &Share) -> Self {
        Self {
            live: share.live().clone(),
            token: share.token(),
            limit: share.limit(),
        }
    }

    fn deadline(&self) -> Instant {
        let deadline = self.live.deadline();
        self.limit.map_or(deadline, |limit| deadline.min(limit))
    }

    fn is_lost(&self) -> bool {
        let is_over = || self.limit.is_some_and(|limit| Instant::now() >= limit);
        self.live.is_lost() || !self.live.has_ended() && is_over()
    }

    async fn lost(&self) {
        match self.limit {
            None => self.live.lost().await,
            Some(limit) => tokio::select! {
                biased; // without chance, a simulation replays
                () = self.live.lost() => {}
                () = tokio::time::sleep_until(limit) => {
                    if self.live.has_ended() {
                        self.live.lost().await;
                    }
                }
            },
        }
    }
}

async fn any_lost(tenures: impl Iterator<Item = Tenure>) {
    let lost = tenures.map(|tenure| Box::pin(async move { tenure.lost().await }));
    select_all(lost).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with a hundred thousand holds keeps as many guards.
    #[test]
    fn a_guard_is_small() {
        assert_eq!(size_of::<Shares>(), 32);
        assert_eq!(size_of::<LockGuard>(), 56);
    }
}
