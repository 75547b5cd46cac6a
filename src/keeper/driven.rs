//! Futures that are always driven to their end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Keeper;

/// Work that the keeper drives.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that the keeper finishes if its caller drops it.
pub(crate) struct Driven<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    keeper: Keeper,
}

impl<T: Send + 'static> Driven<T> {
    pub(crate) fn new(keeper: Keeper, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            work: Some(Box::pin(work)),
            keeper,
        }
    }
}

impl<T: Send + 'static> Future for Driven<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it runs: work that panics is not driven on.
        let mut work = self.work.take().expect("not polled after it was ready");
        match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(output),
            Poll::Pending => {
                self.work = Some(work);
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for Driven<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.keeper.adopt(Box::pin(async move {
                work.await;
            }));
        }
    }
}
