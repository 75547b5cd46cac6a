//! The end of a request: the release, and its confirmation.

use std::task::Poll;

use futures_util::poll;
use tokio::time::{Instant, timeout};

use super::settings::Confirm;
use crate::error::LockError;
use crate::guard::{LockGuard, Releasing};
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

/// Releases, leaving `record` behind if the lock was held until then, and decides whether the response may go
/// (promise S5).
///
/// # Cancel safety
///
/// The release has begun when this returns. If the future is dropped, it continues in the background.
pub(crate) fn confirm(
    how: Confirm,
    guard: LockGuard,
    record: Option<Record>,
) -> impl Future<Output = Result<Confirmation, NotConfirmed>> + Send + use<> {
    let labels = guard.labels();
    let begun = match how {
        Confirm::Deadline => Err(guard.is_lost()),
        Confirm::Store | Confirm::Strict => {
            // After the release has begun, no renewal changes the deadline.
            let deadline = (how == Confirm::Store).then(|| guard.deadline());
            Ok((guard.end(record), deadline))
        }
    };
    async move {
        let confirmed = match begun {
            Err(is_lost) => (!is_lost).then_some(Confirmation::Lease),
            Ok((release, deadline)) => by_store(release, deadline).await,
        };
        if let (Some(confirmation), Some(labels)) = (confirmed, &labels) {
            telemetry::confirmed(labels, confirmation.as_str());
        }
        confirmed.ok_or(NotConfirmed)
    }
}

/// Waits for the store. If it does not answer, the lease confirms until `deadline`; `None`: it does not. It never confirms a response
/// whose lock is known to be lost: the lease may not be over then.
async fn by_store(mut release: Releasing, deadline: Option<Instant>) -> Option<Confirmation> {
    let answer = match poll!(&mut release) {
        Poll::Ready(answer) => Ok(answer),
        // Boxed, because it is large, and the memory of the process answers without it.
        Poll::Pending => Box::pin(timeout(CONFIRMATION, &mut release)).await,
    };
    match (answer, deadline) {
        (Ok(Ok(())), _) => Some(Confirmation::Store),
        (Ok(Err(LockError::Unavailable(_))) | Err(_), Some(deadline))
            if !release.is_lost() && Instant::now() < deadline =>
        {
            Some(Confirmation::Lease)
        }
        _ => None,
    }
}
