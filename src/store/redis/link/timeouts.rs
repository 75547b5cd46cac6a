//! Time limits for Redis, and the form in which durations are sent to it.

use std::time::Duration;

use crate::limits::FOR_EVER;

/// With a shorter limit, a busy machine looks like a dead connection.
const SHORTEST_PROBE: Duration = Duration::from_millis(500);

/// Time limits for Redis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
    /// For the acknowledgements of replicas.
    pub(crate) replicas: Duration,
}

impl Timeouts {
    /// How long a command waits for its answer before its connection is probed.
    pub(super) fn probe_after(self) -> Duration {
        self.response / 6
    }

    /// How long a probe waits for its answer before another connection is opened.
    pub(super) fn probe(self) -> Duration {
        (self.response / 3).max(SHORTEST_PROBE)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(3),
            // Redisson's `slavesSyncTimeout`.
            replicas: Duration::from_secs(1),
        }
    }
}

/// Whole milliseconds, rounded up: never less than `duration`, and never zero.
pub(crate) fn ms(duration: Duration) -> u64 {
    let ms = duration.min(FOR_EVER).as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(ms).expect("it is bounded")
}
