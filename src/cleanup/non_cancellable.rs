//! Futures that are not cancelled with their callers: they always run to their end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::sleep;

use super::Unfinished;
use crate::error::{LockError, StoreError, StoreErrorKind};

/// How long a caller waits for the answer to a release or an owner check. The work continues in the background.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

tokio::task_local! {
    static IN_BACKGROUND: ();
}

/// A future that continues in the background when its caller drops it. It can be moved, also after it was polled: a future that
/// cannot is boxed. It is `None` while it is polled, and after its end.
pub(crate) struct NonCancellable<F: Work>(Option<(Unfinished, F)>);

/// What can continue in the background.
pub(crate) trait Work: Future<Output: Send> + Unpin + Send + 'static {}

impl<F: Future<Output: Send> + Unpin + Send + 'static> Work for F {}

impl<F: Work> NonCancellable<F> {
    /// Wraps work that is counted already.
    pub(crate) fn new(unfinished: Unfinished, future: F) -> Self {
        Self(Some((unfinished, future)))
    }
}

impl<F: Work> Future for NonCancellable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out while it is polled, so that work that panics is not polled again. It is counted until it is dropped,
        // which is before the count: variables are dropped in reverse order.
        let (unfinished, mut future) = self.0.take().expect("polled after it was ready");
        let polled = Pin::new(&mut future).poll(cx);
        if polled.is_pending() {
            self.0 = Some((unfinished, future));
        }
        polled
    }
}

impl<F: Work> Drop for NonCancellable<F> {
    fn drop(&mut self) {
        if let Some((unfinished, future)) = self.0.take() {
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

/// Waits for a release or an owner check, up to the time limit of a caller.
pub(crate) async fn in_time(
    work: impl Future<Output = Result<(), LockError>>,
) -> Result<(), LockError> {
    let late = || {
        StoreError::new(
            StoreErrorKind::Unanswered,
            "the store has not answered in time; the release goes on in the background",
        )
    };
    let (mut work, mut limit) = (pin!(work), pin!(None));
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        // Made at the first wait: in memory most work is done by then, and a timer reads the clock.
        if limit.is_none() {
            limit.set(Some(sleep(ANSWER_TIME)));
        }
        let limit = limit.as_mut().as_pin_mut().expect("it was made");
        limit.poll(cx).map(|()| Err(late().into()))
    })
    .await
}
