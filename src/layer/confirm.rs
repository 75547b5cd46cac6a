//! The end of a request: the release, and its confirmation.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep};

use super::settings::Confirm;
use crate::error::LockError;
use crate::guard::{LockGuard, Releasing};
use crate::limits::CONFIRMATION;
use crate::store::Record;
use crate::telemetry::{self, Labels};

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

/// Releases, leaving `record` behind if the lock was held until then. The future decides whether the response may go
/// (promise S5).
///
/// # Cancel safety
///
/// The release has begun when this returns. If the future is dropped, it continues in the background.
pub(crate) fn confirm(how: Confirm, guard: LockGuard, record: Option<Record>) -> Confirming {
    let labels = guard.labels();
    let by = match how {
        Confirm::Deadline => By::Lease {
            is_lost: guard.is_lost(),
        },
        Confirm::Store | Confirm::Strict => {
            // After the release has begun, no renewal changes the deadline.
            let deadline = (how == Confirm::Store).then(|| guard.deadline());
            By::Store {
                release: guard.end(record),
                deadline,
                limit: None,
            }
        }
    };
    Confirming { by, labels }
}

/// A confirmation that has begun. Not an `async fn`, because every request has one, and moves it.
#[must_use]
pub(crate) struct Confirming {
    by: By,
    labels: Option<Labels>,
}

enum By {
    Lease {
        is_lost: bool,
    },
    Store {
        release: Releasing,
        /// If the store does not answer, the lease confirms until then; `None`: it does not.
        deadline: Option<Instant>,
        /// Boxed, because the memory of the process answers without it.
        limit: Option<Pin<Box<Sleep>>>,
    },
}

impl By {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Confirmation>> {
        let (release, deadline, limit) = match self {
            Self::Lease { is_lost } => {
                return Poll::Ready((!*is_lost).then_some(Confirmation::Lease));
            }
            Self::Store {
                release,
                deadline,
                limit,
            } => (release, *deadline, limit),
        };
        let is_silent = match Pin::new(&mut *release).poll(cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(Some(Confirmation::Store)),
            Poll::Ready(Err(error)) => matches!(error, LockError::Unavailable(_)),
            Poll::Pending => {
                let limit = limit.get_or_insert_with(|| Box::pin(sleep(CONFIRMATION)));
                ready!(limit.as_mut().poll(cx));
                true
            }
        };
        // A lock that is known to be lost is not confirmed: its lease may not be over.
        let by_lease = is_silent
            && !release.is_lost()
            && deadline.is_some_and(|deadline| Instant::now() < deadline);
        Poll::Ready(by_lease.then_some(Confirmation::Lease))
    }
}

impl Future for Confirming {
    type Output = Result<Confirmation, NotConfirmed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let confirmed = ready!(self.by.poll(cx));
        if let (Some(confirmation), Some(labels)) = (confirmed, &self.labels) {
            telemetry::confirmed(labels, confirmation.as_str());
        }
        Poll::Ready(confirmed.ok_or(NotConfirmed))
    }
}
