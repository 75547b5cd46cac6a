//! The release of a guard.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tracing::Span;

use super::handle::Handles;
use crate::cleanup::in_time;
use crate::error::LockError;
use crate::queue::ShareRelease;
use crate::telemetry::Holding;

/// The release of a guard, without a limit of time. If it is dropped, the release continues in the background.
pub(crate) struct Releasing {
    pub(super) release: ShareRelease,
    pub(super) handles: Handles,
    pub(super) holding: Option<Box<Holding>>,
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
        // A loss that the release finds is logged in the span of the lock.
        let span = self
            .holding
            .as_deref()
            .map_or_else(Span::none, Holding::span);
        let release = Pin::new(&mut self.release);
        let released = ready!(span.in_scope(|| release.poll(cx)));
        self.released(&released);
        Poll::Ready(released)
    }
}
