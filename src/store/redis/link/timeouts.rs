//! Time limits for Redis.

use std::time::Duration;

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
