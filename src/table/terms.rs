//! The terms of requests.

use std::time::Duration;

use tokio::time::Instant;

use crate::lock::{Lease, LockMode, Owner};
use crate::telemetry::Route;

/// The terms of a request, which decide whether it can share a hold.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: LockMode,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fenced: bool,
    /// How many requests of this process may wait for the same side of a key; `None`: this one does not wait.
    pub(crate) max_waiters: Option<usize>,
    /// How long it waits in all.
    pub(crate) wait: Duration,
    /// The route of its measurements.
    pub(crate) route: Route,
}

impl Terms {
    /// The same in another mode.
    pub(crate) fn in_mode(&self, mode: LockMode) -> Self {
        Self {
            mode,
            ..self.clone()
        }
    }

    /// The lease to ask for: it is cut at the longest hold.
    pub(crate) fn granted_lease(&self) -> Duration {
        let lease = self.lease.duration();
        self.max_hold.map_or(lease, |max_hold| lease.min(max_hold))
    }

    /// When its longest hold is over, if it begins now.
    pub(super) fn limit(&self, now: Instant) -> Option<Instant> {
        self.max_hold.map(|max_hold| now + max_hold)
    }

    /// Whether the grant needs a fencing token.
    pub(crate) fn needs_token(&self) -> bool {
        self.fenced && self.mode.is_exclusive()
    }
}

/// The limits of hand-overs inside the process, before other processes get their turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandoverLimits {
    /// How many times in a row.
    pub(crate) handovers: u32,
    /// For how long since its grant.
    pub(crate) handover_time: Duration,
    /// How long after its grant a read hold accepts new readers.
    pub(crate) share_window: Duration,
}

impl Default for HandoverLimits {
    fn default() -> Self {
        Self {
            // The benches' section `pace`: fewer cost throughput, more add little, and with 64 every process gets its share.
            handovers: 64,
            handover_time: Duration::from_millis(50),
            share_window: Duration::from_millis(5),
        }
    }
}
