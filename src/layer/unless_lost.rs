//! A handler under its lock.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::confirm::NotConfirmed;
use crate::guard::LockGuard;

/// Drives `handling` until it is done, or the lock of `watched` is lost.
///
/// The lock is watched after the handler's first wait: a handler that never waits needs no timer, and the confirmation
/// finds an earlier loss.
pub(crate) fn unless_lost<F: Future>(
    watched: Option<&LockGuard>,
    handling: F,
) -> UnlessLost<'_, F> {
    UnlessLost {
        handling,
        watched,
        lost: None,
    }
}

pin_project! {
    /// The future of [`unless_lost`].
    pub(crate) struct UnlessLost<'a, F> {
        #[pin]
        handling: F,
        // `None`: it is not watched, or it is watched already.
        watched: Option<&'a LockGuard>,
        // Boxed, because it is large, and a handler that never waits is served without it.
        lost: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    }
}

impl<F: Future> Future for UnlessLost<'_, F> {
    type Output = Result<F::Output, NotConfirmed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(lost) = this.lost
            && lost.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(NotConfirmed));
        }
        if let Poll::Ready(done) = this.handling.poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let Some(guard) = this.watched.take() else {
            return Poll::Pending;
        };
        let watch = this.lost.insert(Box::pin(guard.lost()));
        watch.as_mut().poll(cx).map(|()| Err(NotConfirmed))
    }
}
