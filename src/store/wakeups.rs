//! Wake-ups of waiting attempts.

use std::any::Any;

use tokio::sync::watch;

/// Reports that a refused attempt may succeed now. Dropping it ends the subscription.
///
/// A wake-up between two calls of [`Wakeups::wait`] is kept; several count as one. When its signal has no sender any more,
/// the subscription is over: a client that waits asks the store, and subscribes again, at most once a second.
#[derive(Debug)]
pub struct Wakeups {
    signal: watch::Receiver<()>,
    _subscription: Box<dyn Any + Send + Sync>,
}

impl Wakeups {
    /// Wakes each time that `signal` changes. `subscription` is dropped with the wake-ups: its `Drop` must not
    /// block.
    pub fn new(signal: watch::Receiver<()>, subscription: impl Send + Sync + 'static) -> Self {
        Self {
            signal,
            _subscription: Box::new(subscription),
        }
    }

    /// Whether the subscription is over. A store may listen in a task of the request that subscribed, and that task ends with its
    /// runtime.
    pub(crate) fn is_over(&self) -> bool {
        self.signal.has_changed().is_err()
    }

    /// Forgets what came before.
    #[cfg(feature = "redis")]
    pub(crate) fn starting_now(mut self) -> Self {
        self.signal.mark_unchanged();
        self
    }

    /// Waits for the next wake-up. Returns `false` if none can come any more, because the subscription is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a wake-up is consumed only by returning.
    #[must_use = "`false`: the subscription is over"]
    pub async fn wait(&mut self) -> bool {
        self.signal.changed().await.is_ok()
    }
}
