//! The count of the requests of a client, and whether it admits more.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

use crate::error::LockError;

/// Counts the requests that take locks, and ends them when the client is shut down.
///
/// Both fields are read and written in one order that all threads see: a request that does not see `closed` is seen by a
/// shutdown that counts afterwards.
#[derive(Default)]
pub(super) struct RequestTracker {
    closed: AtomicBool,
    /// How many [`TrackedRequest`]s exist.
    count: AtomicUsize,
    /// The client was shut down, or the last request has ended since.
    changed: Notify,
}

/// Held by a request while it takes locks. It is dropped after the work, when the clean-up of the work is counted.
pub(super) struct TrackedRequest<'a>(&'a RequestTracker);

impl RequestTracker {
    /// Counts a request. One that comes after the shutdown fails at its first poll.
    pub(super) fn track(&self) -> TrackedRequest<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        TrackedRequest(self)
    }

    /// Ends all requests that are counted, and all that come.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits until no request is counted. Call it after [`RequestTracker::close`].
    pub(super) async fn drained(&self) {
        loop {
            // Made before the look, so that it hears of each change after it.
            let changed = self.changed.notified();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl TrackedRequest<'_> {
    /// Whether the client still admits requests.
    pub(super) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    /// Works until the client is shut down.
    pub(super) async fn unless_closed<T>(
        &self,
        work: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let Self(tracker) = self;
        // Made before each look, so that it hears of each change after it. It registers at the first wait, so that a request which
        // is granted at once does not pay for it.
        let (mut work, mut changed) = (pin!(work), pin!(tracker.changed.notified()));
        poll_fn(|cx| {
            // A waiter that a shutdown wakes must not be granted a hold that the shutdown has just released.
            if tracker.is_closed() {
                return Poll::Ready(Err(LockError::Shutdown));
            }
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            let closed = changed.as_mut().poll(cx);
            closed.map(|()| Err(LockError::Shutdown))
        })
        .await
    }
}

impl Drop for TrackedRequest<'_> {
    fn drop(&mut self) {
        let Self(tracker) = self;
        if tracker.count.fetch_sub(1, Ordering::SeqCst) == 1 && tracker.is_closed() {
            tracker.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_request_works_until_the_shutdown() {
        let tracker = RequestTracker::default();
        let tracked = tracker.track();
        let done = tracked.unless_closed(ready(Ok(1))).now_or_never();
        assert_eq!(done.expect("at once").expect("open"), 1);
        let mut waiting = Box::pin(tracked.unless_closed(pending::<Result<(), _>>()));
        assert!(waiting.as_mut().now_or_never().is_none());
        tracker.close();
        let ended = waiting.as_mut().now_or_never().expect("ended");
        assert!(matches!(ended, Err(LockError::Shutdown)));
        let late = tracker.track().unless_closed(ready(Ok(1))).now_or_never();
        assert!(matches!(late, Some(Err(LockError::Shutdown))));
    }

    #[test]
    fn the_end_waits_for_the_last_request() {
        let tracker = RequestTracker::default();
        let (one, other) = (tracker.track(), tracker.track());
        tracker.close();
        let mut drained = Box::pin(tracker.drained());
        assert!(drained.as_mut().now_or_never().is_none());
        drop(one);
        assert!(drained.as_mut().now_or_never().is_none());
        drop(other);
        assert!(drained.as_mut().now_or_never().is_some());
    }
}
