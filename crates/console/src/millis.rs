//! Durations in JSON: whole milliseconds.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub(super) fn of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time since `then`.
pub(super) fn since(then: Instant, now: Instant) -> u64 {
    of(now.saturating_duration_since(then))
}

/// Since 1970.
pub(super) fn of_day(at: SystemTime) -> u64 {
    of(at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default())
}

/// The rest of a lease; `None` if it never ends.
pub(super) fn left(remaining: Duration) -> Option<u64> {
    (remaining != Duration::MAX).then(|| of(remaining))
}
