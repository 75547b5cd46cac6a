//! Guards of held locks.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use tracing::Span;

use crate::cleanup::in_time;
use crate::error::LockError;
use crate::lock::{FencingToken, LockKey, LockMode};
use crate::queue::{Share, ShareRelease, Shares};
use crate::store::Record;
use crate::telemetry::{Holding, Labels, Waiting};

mod handle;

use handle::{BegunInTime, Handles, Tenure, any_lost};
pub use handle::{Ended, LockHandle};

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
#[must_use = "bind it as `let guard = …`; `let _ = …` drops it, which releases the lock at once"]
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
        self.shares.iter().any(Share::is_lost)
    }

    /// Waits until any of its keys is lost; this may never return while the guard is held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        // The guard is borrowed, so no release begins meanwhile.
        let begun = BegunInTime::default();
        match &*self.shares {
            [only] => Tenure::of(only).lost(&begun).await,
            shares => any_lost(shares.iter().map(Tenure::of), &begun).await,
        }
    }

    /// A cheap observer, which can outlive the guard and be passed to other tasks.
    pub fn handle(&self) -> LockHandle {
        self.handles.handle(&self.shares)
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
    /// * [`LockError::Unconfirmed`] if the store did not answer within two seconds, or refused. The release continues in the
    ///   background until the lease is over, and the minimum of a hold that the store may keep for it.
    ///
    /// A handler that returns either answers 500 with an unknown outcome, as the layer does: the work was done, and a client that
    /// repeats the request by itself would do it again.
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
        let now = Instant::now();
        if !shares.iter().any(|share| share.is_over(now)) {
            handles.began_in_time();
        }
        Releasing {
            release: shares.release(record, now),
            handles,
            holding,
        }
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

/// The release of a guard, without a limit of time. If it is dropped, the release continues in the background.
pub(crate) struct Releasing {
    release: ShareRelease,
    handles: Handles,
    holding: Option<Box<Holding>>,
}

impl Releasing {
    /// Whether the lock was known to be lost before.
    pub(crate) fn is_lost(&self) -> bool {
        self.release.is_lost()
    }

    /// Waits for the end up to the time limit of a caller.
    pub(crate) async fn in_time(mut self) -> Result<(), LockError> {
        let released = match in_time(&mut self).await {
            Err(LockError::Unavailable(_)) if self.is_lost() => Err(LockError::Lost),
            Err(LockError::Unavailable(error) | LockError::Conflict(error)) => {
                Err(LockError::Unconfirmed(error))
            }
            Err(error) => Err(error),
            Ok(()) => return Ok(()),
        };
        // It may be late, and not observed yet.
        self.released(&released);
        released
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
        let this = &mut *self;
        let release = Pin::new(&mut this.release);
        let released = ready!(match &this.holding {
            // A loss that the release finds is logged in the span of the lock.
            Some(holding) => holding.span().in_scope(|| release.poll(cx)),
            None => release.poll(cx),
        });
        this.released(&released);
        Poll::Ready(released)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};
    use std::time::Duration;

    use super::*;
    use crate::client::LockClient;
    use crate::store::memory::MemoryStore;
    use crate::watchdog::Phase;

    /// A program with a hundred thousand holds keeps as many guards.
    #[test]
    fn a_guard_is_small() {
        assert_eq!(size_of::<Shares>(), 32);
        assert_eq!(size_of::<LockGuard>(), 56);
    }

    /// The compiler checks it.
    #[test]
    fn a_handle_can_be_used_where_panics_are_caught() {
        fn can_be_used<T: UnwindSafe + RefUnwindSafe>() {}
        can_be_used::<LockHandle>();
    }

    /// One key is lost between the store's answer about all and the end of the request: none is held after the error.
    #[tokio::test(start_paused = true)]
    async fn a_minimum_of_several_keys_fails_for_all() {
        let store = MemoryStore::new();
        let locks = LockClient::new(store.clone());
        let guard = locks.lock_all(["a", "b"]).await.expect("free");
        let id = guard.shares[0].live().hold.id;
        let waiter = tokio::spawn(locks.lock("a").wait(Duration::from_secs(60)).acquire());
        tokio::time::sleep(Duration::from_millis(10)).await;
        guard.shares[1].live().finish(Phase::Lost);
        let kept = guard.kept_until(Instant::now() + Duration::from_secs(3600));
        assert!(matches!(kept.await, Err(LockError::Lost)));
        let next = waiter.await.expect("no panic").expect("it is released");
        assert!(
            next.shares[0].live().hold.id != id,
            "the store would keep the next hold for the minimum"
        );
        next.release().await.expect("held");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(store.is_empty(), "nothing is held after an error");
    }
}
