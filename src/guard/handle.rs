//! Observers of a guard.

use std::fmt;
use std::panic::AssertUnwindSafe;
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
        let tenures = self.observed.tenures.iter();
        let earliest = tenures.map(|tenure| tenure.held.deadline()).min();
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
            excludes && !tenure.held.is_lost(Instant::now()) && !tenure.held.has_ended()
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
        let holds = self.observed.tenures.iter().map(|tenure| &tenure.held);
        let lost = async { any_lost(holds).await };
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
                end: AssertUnwindSafe(SetOnce::new()),
            })
        });
        LockHandle {
            observed: observed.clone(),
            owner: None,
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
        self.end(GuardView::is_any_lost);
    }
}

/// A guard, as its handles see it.
struct GuardView {
    tenures: SmallVec<[Tenure; 1]>,
    /// It is set as a whole or not at all, so handles stay usable in code whose panics are caught.
    end: AssertUnwindSafe<SetOnce<Ended>>,
}

impl GuardView {
    fn is_any_lost(&self) -> bool {
        let now = Instant::now();
        self.tenures.iter().any(|tenure| tenure.held.is_lost(now))
    }
}

/// A guard's share in one hold.
struct Tenure {
    held: Arc<Held>,
    token: Option<FencingToken>,
}

impl Tenure {
    fn of(share: &Share) -> Self {
        Self {
            held: share.held().clone(),
            token: share.token(),
        }
    }
}

/// Waits until any of them is lost.
pub(super) async fn any_lost<'a>(holds: impl Iterator<Item = &'a Arc<Held>>) {
    select_all(holds.map(|held| Box::pin(held.lost()))).await;
}
