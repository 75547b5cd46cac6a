//! How long to wait for Redis, and how durations are sent to it.

use std::time::Duration;

use redis::AsyncConnectionConfig;

/// The longest duration that is sent, so that no sum overflows: 100 years.
const LONGEST: u128 = 100 * 365 * 24 * 3600 * 1000;

/// How long to wait for Redis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) response: Duration,
}

impl Timeouts {
    pub(super) fn config(self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect))
            .set_response_timeout(Some(self.response))
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(3),
        }
    }
}

/// Whole milliseconds, rounded up: never less than was promised, and never nothing.
pub(super) fn ms(duration: Duration) -> u64 {
    let ms = duration.as_nanos().div_ceil(1_000_000).clamp(1, LONGEST);
    u64::try_from(ms).expect("clamped")
}
