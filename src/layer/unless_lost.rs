//! A handler under its lock.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::error::LockError;
use crate::guard::LockGuard;

/// Drives `handling` until it is done, or the lock of `watched` is lost.
///
/// The lock is watched after the handler's first wait: a handler that never waits needs no timer, and the confirmation
/// finds an earlier loss.
pub(crate) fn unless_lost<F: Future + Unpin>(
    mut watched: Option<&LockGuard>,
    mut handling: F,
) -> impl Future<Output = Result<F::Output, LockError>> {
    // Boxed, because it is large, and a handler that never waits is served without it.
    let mut lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    poll_fn(move |cx| {
        if let Some(lost) = &mut lost
            && lost.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(LockError::Lost));
        }
        if let Poll::Ready(done) = Pin::new(&mut handling).poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let Some(guard) = watched.take() else {
            return Poll::Pending;
        };
        let watch = lost.insert(Box::pin(guard.lost()));
        watch.as_mut().poll(cx).map(|()| Err(LockError::Lost))
    })
}
