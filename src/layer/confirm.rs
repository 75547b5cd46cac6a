//! The end of a request: the release, and its confirmation.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

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

/// Releases, leaving `record` behind if the lock was held until then, and decides whether the response may go
/// (promise S5).
///
/// # Cancel safety
///
/// The release has begun when this returns. If the future is dropped, it continues in the background.
pub(crate) fn confirm(how: Confirm, guard: LockGuard, record: Option<Record>) -> Confirming {
    let labels = guard.labels();
    let pending = match how {
        Confirm::Deadline => {
            let is_held = !guard.is_lost();
            Pending::Decided(is_held.then_some(Confirmation::Lease).ok_or(NotConfirmed))
        }
        Confirm::Store | Confirm::Strict => Pending::Releasing {
            // After the release has begun, no renewal changes the deadline.
            deadline: (how == Confirm::Store).then(|| guard.deadline()),
            release: guard.end(record),
            late: None,
        },
    };
    Confirming { labels, pending }
}

/// The future of [`confirm`]. It is small, because each request has one.
pub(crate) struct Confirming {
    /// `None` if the guard is not observed.
    labels: Option<Labels>,
    pending: Pending,
}

enum Pending {
    Decided(Result<Confirmation, NotConfirmed>),
    Releasing {
        release: Releasing,
        /// Until when the lease confirms a response that the store does not confirm; `None`: it does not. It never confirms one
        /// whose lock is known to be lost: the lease may not be over then.
        deadline: Option<Instant>,
        /// The timer of [`CONFIRMATION`], which is made when the release first waits.
        late: Option<Pin<Box<Sleep>>>,
    },
}

impl Future for Confirming {
    type Output = Result<Confirmation, NotConfirmed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let confirmed = match &mut self.pending {
            Pending::Decided(decided) => *decided,
            Pending::Releasing {
                release,
                deadline,
                late,
            } => match (
                ready!(poll_within(CONFIRMATION, release, late, cx)),
                *deadline,
            ) {
                (Some(Ok(())), _) => Ok(Confirmation::Store),
                (Some(Err(LockError::Unavailable(_))) | None, Some(deadline))
                    if !release.is_lost() && Instant::now() < deadline =>
                {
                    Ok(Confirmation::Lease)
                }
                _ => Err(NotConfirmed),
            },
        };
        if let (Ok(confirmation), Some(labels)) = (confirmed, &self.labels) {
            telemetry::confirmed(labels, confirmation.as_str());
        }
        Poll::Ready(confirmed)
    }
}

/// Polls `work`, which gets `limit` at most since it first waits; then `None`.
fn poll_within<F: Future + Unpin>(
    limit: Duration,
    work: &mut F,
    late: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<Option<F::Output>> {
    if let Poll::Ready(done) = Pin::new(work).poll(cx) {
        return Poll::Ready(Some(done));
    }
    let late = late.get_or_insert_with(|| Box::pin(sleep(limit)));
    late.as_mut().poll(cx).map(|()| None)
}
