//! Futures that always run to their end.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::Unfinished;
use crate::error::{LockError, StoreError, StoreErrorKind};

/// How long a caller waits for the answer to a release or an owner check. The work continues in the background.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

tokio::task_local! {
    static IN_BACKGROUND: ();
}

/// A future that continues in the background when its caller drops it.
pub(crate) struct Driven<T: Send + 'static> {
    state: Progress<T>,
    /// The future releases a hold that is known to be lost.
    is_lost: bool,
}

enum Progress<T> {
    /// The result was there at once.
    Done(T),
    Working(Work<T>),
    Ended,
}

struct Work<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    unfinished: Unfinished,
}

impl<T: Send + 'static> Driven<T> {
    /// Wraps work that is counted already.
    pub(crate) fn counted(
        unfinished: Unfinished,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let future = Box::pin(future);
        Self {
            state: Progress::Working(Work { future, unfinished }),
            is_lost: false,
        }
    }

    /// Wraps the result of work that is done.
    pub(crate) fn done(result: T) -> Self {
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
}

impl<T: Send + 'static> Driven<T> {
    /// Whether it is the release of a lost hold.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The result, if it was there at once.
    fn take_result(&mut self) -> Option<T> {
        match mem::replace(&mut self.state, Progress::Ended) {
            Progress::Done(result) => Some(result),
            state => {
                self.state = state;
                None
            }
        }
    }
}

// The future in it is boxed.
impl<T: Send + 'static> Unpin for Driven<T> {}

impl Driven<Result<(), LockError>> {
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

impl<T: Send + 'static> Future for Driven<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled, so that work that panics is not polled again.
        let mut work = match mem::replace(&mut self.state, Progress::Ended) {
            Progress::Done(result) => return Poll::Ready(result),
            Progress::Working(work) => work,
            Progress::Ended => panic!("polled after it was ready"),
        };
        match work.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(output),
            Poll::Pending => {
                self.state = Progress::Working(work);
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for Driven<T> {
    fn drop(&mut self) {
        let Progress::Working(work) = mem::replace(&mut self.state, Progress::Ended) else {
            return;
        };
        let Work { future, unfinished } = work;
        unfinished.adopt(Box::pin(IN_BACKGROUND.scope((), async move {
            future.await;
        })));
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
