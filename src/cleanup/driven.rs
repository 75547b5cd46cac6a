//! Futures that always run to their end.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::Unfinished;
use crate::error::{LockError, StoreError, StoreErrorKind};

/// How long a caller waits for the answer to a release or an owner check. The work continues in the background.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

tokio::task_local! {
    static IN_BACKGROUND: ();
}

/// A future that continues in the background when its caller drops it. It can be moved, also after it was polled: a future that
/// cannot is [boxed](Driven::boxed).
pub(crate) struct Driven<F: Work> {
    state: Progress<F>,
    /// The future releases a hold that is known to be lost.
    is_lost: bool,
}

/// What can be driven.
pub(crate) trait Work: Future<Output: Send> + Unpin + Send + 'static {}

impl<F: Future<Output: Send> + Unpin + Send + 'static> Work for F {}

enum Progress<F: Work> {
    /// The result was there at once.
    Done(F::Output),
    Working(F, Unfinished),
    Ended,
}

impl<T: Send + 'static> Driven<BoxFuture<'static, T>> {
    /// The same as [`new`](Self::new) for any future.
    pub(crate) fn boxed(
        unfinished: Unfinished,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self::new(unfinished, Box::pin(future))
    }
}

impl<F: Work> Driven<F> {
    /// Wraps work that is counted already.
    pub(crate) fn new(unfinished: Unfinished, future: F) -> Self {
        Self {
            state: Progress::Working(future, unfinished),
            is_lost: false,
        }
    }

    /// Wraps the result of work that is done.
    pub(crate) fn done(result: F::Output) -> Self {
        Self {
            state: Progress::Done(result),
            is_lost: false,
        }
    }

    /// Marks the future as the release of a lost hold: it fails as lost, whatever the store
    /// answers.
    pub(crate) fn of_lost(mut self, is_lost: bool) -> Self {
        self.is_lost = is_lost;
        self
    }

    /// Whether it is the release of a lost hold.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The result, if it was there at once.
    fn take_result(&mut self) -> Option<F::Output> {
        match mem::replace(&mut self.state, Progress::Ended) {
            Progress::Done(result) => Some(result),
            state => {
                self.state = state;
                None
            }
        }
    }
}

// The future in it can be moved.
impl<F: Work> Unpin for Driven<F> {}

impl<F: Work<Output = Result<(), LockError>>> Driven<F> {
    /// Waits for the end up to the time limit of a caller. After that it continues in the
    /// background.
    pub(crate) async fn in_time(mut self) -> Result<(), LockError> {
        if let Some(result) = self.take_result() {
            return result;
        }
        let is_lost = self.is_lost;
        let result = timeout(PATIENCE, self).await;
        result.unwrap_or_else(|_| match is_lost {
            true => Err(LockError::Lost),
            false => Err(late().into()),
        })
    }
}

impl<F: Work> Future for Driven<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out while it is polled, so that work that panics is not polled again.
        // It is counted until it is dropped.
        let (unfinished, mut future) = match mem::replace(&mut self.state, Progress::Ended) {
            Progress::Done(result) => return Poll::Ready(result),
            Progress::Working(future, unfinished) => (unfinished, future),
            Progress::Ended => panic!("polled after it was ready"),
        };
        let polled = Pin::new(&mut future).poll(cx);
        if polled.is_pending() {
            self.state = Progress::Working(future, unfinished);
        }
        polled
    }
}

impl<F: Work> Drop for Driven<F> {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.state, Progress::Ended);
        if let Progress::Working(future, unfinished) = state {
            unfinished.adopt(Box::pin(IN_BACKGROUND.scope((), async move {
                future.await;
            })));
        }
    }
}

/// Whether the caller of this future has dropped it, so that it runs in the background.
pub(crate) fn is_in_background() -> bool {
    IN_BACKGROUND.try_with(|()| ()).is_ok()
}

/// The error if the store did not answer within the caller's time limit.
pub(crate) fn late() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store has not answered in time; the release goes on in the background",
    )
}
