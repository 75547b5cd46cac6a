//! Work that its caller polls, and that goes on without it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use super::Core;

/// See [`Core::kept`]. Its caller polls it; if the caller is dropped, it continues in the background.
#[must_use]
pub(crate) struct Kept<T: Send + 'static>(Option<(Arc<Core>, BoxFuture<'static, T>)>);

impl<T: Send + 'static> Kept<T> {
    pub(super) fn new(core: Arc<Core>, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some((core, Box::pin(work))))
    }
}

impl<T: Send + 'static> Future for Kept<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let (_, work) = self.0.as_mut().expect("polled after it was ready");
        let done = ready!(work.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some((core, work)) = self.0.take() {
            // Near its timers, if their runtime goes on.
            core.spawner.run_near(async move {
                drop(work.await);
            });
        }
    }
}
