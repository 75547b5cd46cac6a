//! Durations in JSON: whole milliseconds.

use std::time::{Duration, SystemTime};

pub(crate) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Since 1970.
pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    to_ms(
        at.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// The rest of a lease; `None` if it never ends.
pub(crate) fn remaining_ms(remaining: Duration) -> Option<u64> {
    (remaining != Duration::MAX).then(|| to_ms(remaining))
}
