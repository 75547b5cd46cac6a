//! How a waiter hears that it may succeed now.

use std::fmt;

use tokio::sync::watch;

/// Notices that a refused attempt may succeed now. Dropping it ends the subscription.
///
/// A wake-up that comes between two calls of [`Wakeups::wait`] is kept; several are one.
#[derive(Debug)]
pub struct Wakeups {
    signal: watch::Receiver<()>,
    /// Of one in line: whether, just now, every release wakes it all the same.
    in_line: Option<Hearing>,
    _subscription: Option<Subscription>,
}

struct Hearing(Box<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Hearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hearing")
    }
}

struct Subscription(#[allow(dead_code)] Box<dyn Send + Sync>);

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

impl Wakeups {
    /// Wakes whenever `signal` is sent. `subscription` is dropped with the wake-ups: its `Drop` must not block.
    pub fn new(signal: watch::Receiver<()>, subscription: impl Send + Sync + 'static) -> Self {
        Self {
            signal,
            in_line: None,
            _subscription: Some(Subscription(Box::new(subscription))),
        }
    }

    /// The same wake-ups, which come to one process when its attempt is [in line](super::Attempt::in_line) and the first
    /// there. A store says this of the wake-ups of such attempts; they are none of the
    /// [`Released::notified`](super::Released::notified). `hears_all` says whether, just now, every release wakes them all
    /// the same.
    #[must_use]
    pub fn in_line(self, hears_all: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            in_line: Some(Hearing(Box::new(hears_all))),
            ..self
        }
    }

    /// Whether every release wakes them, that of this process too.
    pub(crate) fn hear_every_release(&self) -> bool {
        self.in_line.as_ref().is_none_or(|hearing| hearing.0())
    }

    /// Whether they are among the [`Released::notified`](super::Released::notified).
    pub(crate) fn are_counted(&self) -> bool {
        self.in_line.is_none()
    }

    /// Waits for the next wake-up; for ever if none can come any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a wake-up is consumed only by returning.
    pub async fn wait(&mut self) {
        if self.signal.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
