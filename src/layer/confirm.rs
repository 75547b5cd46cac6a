//! The end of a request: the release, and its confirmation.

use futures_util::future::{FutureExt, poll_immediate};
use tokio::time::{Instant, timeout_at};

use super::settings::Confirm;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::guard::{LockGuard, Releasing};
use crate::limits::CONFIRMATION;
use crate::store::Record;
use crate::telemetry;

/// The proof that the lock of a response was held until the end of the request, in its [`LockTiming`](super::LockTiming).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfirmedBy {
    /// The store: it carried the hold without a gap from the grant until the release. Two such requests never overlapped,
    /// whatever happened to clocks, processes and networks (S5).
    Store,
    /// The lease alone: by this process's clock it has not expired. The store was not asked ([`Confirm::Deadline`]) or did not
    /// answer ([`Confirm::Store`]). If the store has lost the hold meanwhile, in a failover or a crash, or the machine was
    /// suspended, when that clock stands still, such a request may have overlapped another one.
    Lease,
}

impl ConfirmedBy {
    /// Its name in lower case, for labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
        }
    }
}

/// Releases, leaving `record` behind if the lock was held until then, and decides whether the response may go (promise S5).
///
/// # Errors
///
/// Why the response may not go: the lock was lost, or its release is `Unconfirmed`; with a record also `Invalid`.
///
/// # Cancel safety
///
/// If the future is dropped, the release continues in the background.
pub(crate) fn confirm(
    how: Confirm,
    guard: LockGuard,
    record: Option<Record>,
) -> impl Future<Output = Result<ConfirmedBy, LockError>> + Send {
    let labels = guard.labels();
    // After the release has begun, no renewal changes the deadline.
    let (deadline, is_lost) = (guard.deadline(), guard.is_lost());
    let mut release = match how {
        Confirm::Deadline => {
            drop(guard);
            None
        }
        Confirm::Store | Confirm::Strict => Some(guard.end(record)),
    };
    // Not an `async fn`, whose future has its arguments twice.
    async move {
        let by = match &mut release {
            None if is_lost => return Err(LockError::Lost),
            None => ConfirmedBy::Lease,
            Some(release) => {
                let deadline = (how == Confirm::Store).then_some(deadline);
                released(release, deadline).await?
            }
        };
        if let Some(labels) = &labels {
            telemetry::confirmed(labels, by.as_str());
        }
        Ok(by)
    }
}

/// `deadline`: that of the hold, if its lease may stand for an answer.
async fn released(
    mut release: &mut Releasing,
    deadline: Option<Instant>,
) -> Result<ConfirmedBy, LockError> {
    let answer = match poll_immediate(&mut release).await {
        // The memory of the process answers without a timer.
        Some(answer) => answer,
        None => Box::pin(in_time(Instant::now() + CONFIRMATION, &mut release)).await,
    };
    match answer {
        Ok(()) => Ok(ConfirmedBy::Store),
        // The lease of a lock that is known to be lost may not be over.
        Err(LockError::Unavailable(_))
            if !release.is_lost() && deadline.is_some_and(|deadline| Instant::now() < deadline) =>
        {
            Ok(ConfirmedBy::Lease)
        }
        Err(error) => Err(release.of_the_work(error)),
    }
}

/// What the store answers before `until`.
pub(crate) fn in_time<T>(
    until: Instant,
    answer: impl Future<Output = Result<T, LockError>>,
) -> impl Future<Output = Result<T, LockError>> {
    let late = |elapsed| StoreError::new(StoreErrorKind::Unanswered, elapsed);
    timeout_at(until, answer)
        .map(move |answer| answer.unwrap_or_else(|elapsed| Err(late(elapsed).into())))
}
