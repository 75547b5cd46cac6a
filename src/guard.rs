//! Guards of held locks.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::Span;

use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::limits::ANSWER_TIME;
use crate::lock::{FencingToken, Lease, LockKey, LockMode};
use crate::release::{Share, ShareRelease, Shares};
use crate::store::Record;
use crate::telemetry::{Holding, Labels, Waiting};

mod handle;

pub use handle::{Ended, LockHandle};
use handle::{Handles, any_lost};

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
    pub(crate) fn new(shares: Shares) -> Self {
        Self {
            shares,
            handles: Handles::default(),
            holding: None,
        }
    }

    /// The same, with the observation of its wait.
    pub(crate) fn observed(mut self, waiting: Waiting) -> Self {
        let holding = waiting.granted(self.shares.iter().map(Share::held));
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
        &self.shares[0].held().hold.key
    }

    /// Every held key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.shares.iter().map(|share| &share.held().hold.key)
    }

    /// The mode of the hold on [`LockGuard::key`].
    ///
    /// Re-entry joins a hold that the owner has already, so this may be the mode of an outer acquisition.
    pub fn mode(&self) -> LockMode {
        self.shares[0].held().hold.mode
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
        shares.map(|share| (&share.held().hold.key, share.token()))
    }

    /// The time until which the lock is certainly held without a renewal, by this process's clock; the earliest of all keys.
    pub fn deadline(&self) -> Instant {
        let deadlines = self.shares.iter().map(|share| share.held().deadline());
        deadlines.min().expect("a guard holds at least one key")
    }

    /// Whether any of its keys is lost: its deadline passed, or the store answered that the hold is gone.
    pub fn is_lost(&self) -> bool {
        self.shares.is_any_lost(Instant::now())
    }

    /// Waits until any of its keys is lost; this may never return while the guard is held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        match &*self.shares {
            [only] => only.held().lost().await,
            shares => any_lost(shares.iter().map(Share::held)).await,
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
    /// Whether its keys can be kept taken for this time.
    pub(crate) fn check_least(&self, time: Duration) -> Result<(), LockError> {
        let until = Instant::now() + time;
        for share in self.shares.iter() {
            let held = share.held();
            if !held.hold.mode.is_exclusive() {
                return Err(LockError::invalid(
                    "a least time needs an exclusive mode: readers do not keep each other out",
                ));
            }
            let is_short = matches!(held.lease, Lease::Fixed(lease) if lease < time);
            if is_short || held.limit().is_some_and(|limit| limit < until) {
                return Err(LockError::invalid(
                    "the hold ends before its least time: choose a longer fixed lease and a longer `max_hold`",
                ));
            }
        }
        Ok(())
    }

    /// [`Shares::keep_until`].
    pub(crate) async fn keep_until(&self, until: Instant) -> Result<(), LockError> {
        self.shares.keep_until(until).await
    }

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
        let late = || {
            let late = "the store has not answered in time; the release goes on in the background";
            Err(StoreError::new(StoreErrorKind::Unanswered, late).into())
        };
        let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut self).poll(cx))).await;
        // A timer reads the clock, and needs a runtime. In memory the release is done by now.
        let released = match first {
            Poll::Ready(released) => released,
            Poll::Pending => timeout(ANSWER_TIME, &mut self)
                .await
                .unwrap_or_else(|_| late()),
        };
        let released = match released {
            Ok(()) => return Ok(()),
            Err(error) => Err(self.of_the_work(error)),
        };
        // It may be late, and not observed yet.
        self.released(&released);
        released
    }

    /// What the error of the release says of the work under the lock.
    pub(crate) fn of_the_work(&self, error: LockError) -> LockError {
        match error {
            LockError::Unavailable(_) if self.is_lost() => LockError::Lost,
            LockError::Unavailable(error) | LockError::Conflict(error) => {
                LockError::Unconfirmed(error)
            }
            error => error,
        }
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
mod tests;
