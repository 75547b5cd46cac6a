//! The limits of leases and holds. The client and every layer use the same limits.
//!
//! A duration that is too short is refused when a request is made or a layer is built. A duration that is longer than
//! [`FOR_EVER`] is shortened to it.

use std::time::Duration;

use tokio::time::Instant;

use crate::lock::Lease;

/// The shortest lease that leaves room for clock drift and a renewal.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);

/// Longer than any process lives, and short enough that clocks can represent the instant.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The time that a store needs for an answer. A request does not end its wait for less.
pub(crate) const LAST_MOMENT: Duration = Duration::from_millis(100);

/// How long a caller waits for the answer to a release. The work continues in the background.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The longest sleep between two questions. A lost wake-up costs at most this.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// How long the single attempt of a caller that does not wait may take.
pub(crate) const ONE_TRY: Duration = Duration::from_secs(2);

/// For how long a store is asked at least to withdraw an attempt; longer if its lease is.
pub(crate) const WITHDRAWAL: Duration = Duration::from_secs(10);

/// For how long a store is asked to confirm a hold, all questions together. A client waits meanwhile.
pub(crate) const CONFIRMATION: Duration = Duration::from_secs(1);

/// Checks a lease and a longest hold; the error says which limit is broken.
pub(crate) fn check(lease: Lease, max_hold: Option<Duration>) -> Result<(), &'static str> {
    if lease.duration() < SHORTEST {
        return Err("the lease is too short to be held: choose at least 10 ms");
    }
    if max_hold.is_some_and(|max_hold| max_hold < SHORTEST) {
        return Err("the longest hold is too short: choose at least 10 ms");
    }
    Ok(())
}

/// The same lease, no longer than [`FOR_EVER`].
pub(crate) fn bounded(lease: Lease) -> Lease {
    match lease {
        Lease::Renewed(duration) => Lease::Renewed(duration.min(FOR_EVER)),
        Lease::Fixed(duration) => Lease::Fixed(duration.min(FOR_EVER)),
    }
}

/// `duration` from `now`, or the far future if there is no such instant.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}
