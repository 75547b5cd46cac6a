//! The end of a request: the release, and its confirmation.

use futures_util::future::poll_immediate;
use tokio::time::{Instant, timeout};

use super::settings::Confirm;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::limits::CONFIRMATION;
use crate::store::Record;
use crate::telemetry;

/// The proof that the lock of a response was held until the end of the request, in its [`LockTiming`](super::LockTiming).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Confirmation {
    /// The store: it carried the hold without a gap from the grant until the release. Two such requests never overlapped,
    /// whatever happened to clocks, processes and networks (S5).
    Store,
    /// The lease alone: by this process's clock it has not expired. The store was not asked ([`Confirm::Deadline`]) or did not
    /// answer ([`Confirm::Store`]). If the store has lost the hold meanwhile, in a failover or a crash, or the machine was
    /// suspended, when that clock stands still, such a request may have overlapped another one.
    Lease,
}

impl Confirmation {
    /// Its name in lower case, for labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
        }
    }
}

/// The lock was lost, or it is unknown whether it was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotConfirmed;

/// Releases, leaving `record` behind if the lock was held until then, and decides whether the response may go (promise S5).
///
/// # Cancel safety
///
/// If the future is dropped, the release continues in the background.
pub(crate) async fn confirm(
    how: Confirm,
    guard: LockGuard,
    record: Option<Record>,
) -> Result<Confirmation, NotConfirmed> {
    let labels = guard.labels();
    let confirmation = if how == Confirm::Deadline {
        (!guard.is_lost()).then_some(Confirmation::Lease)
    } else {
        // After the release has begun, no renewal changes the deadline.
        let deadline = (how == Confirm::Store).then(|| guard.deadline());
        let mut release = guard.end(record);
        let answer = match poll_immediate(&mut release).await {
            // The memory of the process answers without a timer.
            Some(answer) => Some(answer),
            None => Box::pin(timeout(CONFIRMATION, &mut release)).await.ok(),
        };
        // A lock that is known to be lost is not confirmed: its lease may not be over.
        let by_lease =
            || !release.is_lost() && deadline.is_some_and(|deadline| Instant::now() < deadline);
        match answer {
            Some(Ok(())) => Some(Confirmation::Store),
            None | Some(Err(LockError::Unavailable(_))) => {
                by_lease().then_some(Confirmation::Lease)
            }
            Some(Err(_)) => None,
        }
    };
    if let (Some(by), Some(labels)) = (confirmation, &labels) {
        telemetry::confirmed(labels, by.as_str());
    }
    confirmation.ok_or(NotConfirmed)
}
