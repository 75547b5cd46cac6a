//! The limits of hand-overs.

use std::time::Duration;

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
            // The benches' section `pace`: fewer cost throughput, more add little, and with 64 every process gets its
            // share.
            handovers: 64,
            handover_time: Duration::from_millis(50),
            share_window: Duration::from_millis(5),
        }
    }
}
