//! What a lock cost a response, and what confirms it.

use std::time::Duration;

use http::Response;

use super::confirm::ConfirmedBy;
use super::hold_times::TimedHold;

/// What the lock of a response cost, and what confirms it.
///
/// It is in the extensions of each response that a layer of this crate has served under a lock, for layers further out. A response
/// that a layer has not served has a [`Rejection`](super::Rejection) instead, and one that was served without a lock has neither.
///
/// If several layers held locks, it has the sum of their waits, the longest hold and the weakest confirmation.
///
/// ```
/// use http::Response;
/// use tower_distributed_lock::layer::LockTiming;
///
/// fn log<B>(response: &Response<B>) {
///     if let Some(timing) = response.extensions().get::<LockTiming>() {
///         println!("waited {:?}, held {:?}", timing.waited(), timing.held());
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTiming {
    waited: Duration,
    /// `None`: the body holds the lock.
    held: Option<(Duration, ConfirmedBy)>,
}

impl LockTiming {
    /// Of a response whose lock was released before its head, `by` what confirms it; `None`: its body holds the lock.
    pub(crate) fn of(hold: &mut TimedHold, by: Option<ConfirmedBy>) -> Self {
        Self {
            waited: hold.waited,
            held: by.map(|by| (hold.end(), by)),
        }
    }

    /// How long the request waited for its lock, the questions to the store included.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long the request held its lock; `None` if the body of the response holds it
    /// ([`ReleaseOn::BodyEnd`](super::ReleaseOn::BodyEnd)), so that the head goes out before the end.
    pub fn held(&self) -> Option<Duration> {
        self.held.map(|(held, _)| held)
    }

    /// What confirms that the lock was held until the end of the request; `None` if the body of the response holds it, even if an
    /// [`IdempotencyLayer`](crate::IdempotencyLayer) reads that body to its end.
    pub fn confirmed_by(&self) -> Option<ConfirmedBy> {
        self.held.map(|(_, by)| by)
    }

    /// Puts it into the response, together with the timing of a layer further in.
    pub(crate) fn put<B>(mut self, response: &mut Response<B>) {
        let extensions = response.extensions_mut();
        if let Some(inner) = extensions.get_mut::<Self>() {
            self.waited += inner.waited;
            let both = self.held.zip(inner.held);
            self.held = both.map(|((held, by), (inner, weaker))| {
                let by = if weaker == ConfirmedBy::Lease {
                    weaker
                } else {
                    by
                };
                (held.max(inner), by)
            });
            *inner = self;
            return;
        }
        extensions.insert(self);
    }
}
