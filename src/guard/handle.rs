//! Observers of a guard.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::select_all;
use smallvec::SmallVec;
use tokio::sync::SetOnce;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::LockError;
use crate::hold::Held;
use crate::lock::{FencingToken, Hold, HoldId, LockKey, LockMode, Owner};
use crate::release::Share;
use crate::sync::caught;

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
/// use tower_distributed_lock::guard::Ended;
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
    /// Who may share the lock; `None`: the guard's owner is not known.
    owner: Option<Owner>,
}

/// How a guard's share in a lock ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The guard was dropped, or released without a known loss.
    /// [`LockGuard::release`](super::LockGuard::release) returns to its caller whether that was confirmed.
    Released,
    /// The lock was lost before, or its release found it lost.
    Lost,
}

impl LockHandle {
    /// The same, for the owner of the lock.
    pub(crate) fn of_owner(self, owner: &Owner) -> Self {
        let owner = Some(owner.clone());
        Self { owner, ..self }
    }

    /// Who may share the lock.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// The hold on every key, in order.
    pub(crate) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.observed.tenures.iter().map(|tenure| &tenure.held.hold)
    }

    /// Whether the guard has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.observed.end.initialized()
    }

    /// The first held key.
    pub fn key(&self) -> &LockKey {
        &self.observed.tenures[0].held.hold.key
    }

    /// Every held key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        let tenures = self.observed.tenures.iter();
        tenures.map(|tenure| &tenure.held.hold.key)
    }

    /// The id of the hold on [`LockHandle::key`], as operators see it: see [`LockAdmin`](crate::LockAdmin).
    pub fn id(&self) -> HoldId {
        self.observed.tenures[0].held.hold.id
    }

    /// The mode of the hold on [`LockHandle::key`].
    pub fn mode(&self) -> LockMode {
        self.observed.tenures[0].held.hold.mode
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
        tenures.map(|tenure| (&tenure.held.hold.key, tenure.token))
    }

    /// The time until which the lock is certainly held without a renewal, by this process's clock; the earliest of all keys.
    /// It has no meaning after the end of the guard.
    pub fn deadline(&self) -> Instant {
        let earliest = self.observed.tenures.iter().map(Tenure::deadline).min();
        earliest.expect("a guard holds at least one key")
    }

    /// Whether another owner that asks `client` for `key` in `mode` must wait for this lock. The end of another hold frees one
    /// of several permits.
    pub(crate) fn excludes(&self, client: Uuid, key: &LockKey, mode: LockMode) -> bool {
        // The hold may go on for other guards.
        if self.has_ended() {
            return false;
        }
        let excludes = |mode: LockMode| mode.is_exclusive() || mode == LockMode::permits(1);
        self.observed.tenures.iter().any(|tenure| {
            let hold = &tenure.held.hold;
            let is_same = hold.key == *key && hold.id.client() == client;
            let excludes = is_same && (excludes(hold.mode) || excludes(mode));
            // The release of this guard may be awaited after its longest hold, while the hold goes on.
            excludes && !tenure.is_lost(&BegunInTime::default()) && !tenure.held.has_ended()
        })
    }

    /// Whether the lock was lost. A lock that was released is not lost.
    pub fn is_lost(&self) -> bool {
        match self.observed.end.get() {
            Some(end) => *end == Ended::Lost,
            None => self.observed.is_any_lost(),
        }
    }

    /// Waits until the lock is lost. A release is no loss: after a release, the future never returns. In a task that may outlive
    /// the guard, wait for [`LockHandle::ended`] instead.
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
        let tenures = self.observed.tenures.iter().cloned();
        let lost = async { any_lost(tenures, &self.observed.begun).await };
        tokio::select! {
            biased; // without chance, a simulation replays
            end = caught(self.observed.end.wait()) => *end,
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

/// The state that the handles of one guard share, from the first handle on. It is dropped with the guard, which ends their
/// observation.
#[derive(Default)]
pub(super) struct Handles(OnceLock<Arc<GuardView>>);

impl Handles {
    pub(super) fn handle(&self, shares: &[Share]) -> LockHandle {
        let observed = self.0.get_or_init(|| {
            Arc::new(GuardView {
                tenures: shares.iter().map(Tenure::of).collect(),
                begun: BegunInTime::default(),
                end: AssertUnwindSafe(SetOnce::new()),
            })
        });
        LockHandle {
            observed: observed.clone(),
            owner: None,
        }
    }

    /// The release of the guard begins before its longest hold is over.
    pub(super) fn began_in_time(&self) {
        if let Some(observed) = self.0.get() {
            observed.begun.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn released(&mut self, released: &Result<(), LockError>) {
        self.end(|_| matches!(released, Err(LockError::Lost)));
    }

    /// Ends the observation, if a handle exists that may still read it. A guard that is released and dropped ended at its release.
    fn end(&mut self, is_lost: impl FnOnce(&GuardView) -> bool) {
        if let Some(observed) = self.0.get_mut()
            && Arc::get_mut(observed).is_none()
            && !observed.end.initialized()
        {
            let end = match is_lost(observed) {
                true => Ended::Lost,
                false => Ended::Released,
            };
            // Only the guard ends it.
            let _ = observed.end.set(end);
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.end(GuardView::was_any_lost);
    }
}

/// A guard, as its handles see it.
struct GuardView {
    tenures: SmallVec<[Tenure; 1]>,
    begun: BegunInTime,
    /// It is set as a whole or not at all, so handles stay usable in code whose panics are caught.
    end: AssertUnwindSafe<SetOnce<Ended>>,
}

impl GuardView {
    fn is_any_lost(&self) -> bool {
        let mut tenures = self.tenures.iter();
        tenures.any(|tenure| tenure.is_lost(&self.begun))
    }

    /// The same at the end of the guard, whose shares may have ended just before.
    fn was_any_lost(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        let mut tenures = self.tenures.iter();
        tenures.any(|tenure| tenure.held.is_lost(Instant::now()) || !begun && tenure.is_over())
    }
}

/// Whether the release of a guard has begun before its longest hold was over. That limit does not end it then, however long the
/// store takes to answer.
pub(super) type BegunInTime = AtomicBool;

/// A guard's share in one hold.
#[derive(Clone)]
pub(super) struct Tenure {
    held: Arc<Held>,
    token: Option<FencingToken>,
    limit: Option<Instant>,
}

impl Tenure {
    pub(super) fn of(share: &Share) -> Self {
        Self {
            held: share.held().clone(),
            token: share.token(),
            limit: share.limit(),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        let deadline = self.held.deadline();
        self.limit.map_or(deadline, |limit| deadline.min(limit))
    }

    fn is_lost(&self, begun: &BegunInTime) -> bool {
        // The clock is read first: a release that had begun by then is seen.
        self.held.is_lost(Instant::now())
            || self.is_over() && !begun.load(Ordering::Relaxed) && !self.held.has_ended()
    }

    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| Instant::now() >= limit)
    }

    pub(super) async fn lost(&self, begun: &BegunInTime) {
        match self.limit {
            None => self.held.lost().await,
            Some(limit) => tokio::select! {
                biased; // without chance, a simulation replays
                () = self.held.lost() => {}
                () = tokio::time::sleep_until(limit) => {
                    if begun.load(Ordering::Relaxed) || self.held.has_ended() {
                        self.held.lost().await;
                    }
                }
            },
        }
    }
}

/// Waits until any of them is lost.
pub(super) async fn any_lost(tenures: impl Iterator<Item = Tenure>, begun: &BegunInTime) {
    let lost = tenures.map(|tenure| Box::pin(async move { tenure.lost(begun).await }));
    select_all(lost).await;
}
