//! How long a store carried a hold.

use tokio::time::Instant;
use tower_distributed_lock::lock::{Hold, HoldId};

/// The time of an event: first the clock, then the log's ticks.
pub(super) type Stamp = (Instant, u64);

/// A hold, from its grant to its end.
pub(super) struct Life {
    pub(super) hold: Hold,
    pub(super) granted: Stamp,
    pub(super) until: Instant,
    /// `None`: it lives, or has expired.
    pub(super) ended: Option<Stamp>,
}

impl Life {
    pub(super) fn is_live(&self, now: Instant) -> bool {
        self.ended.is_none() && self.until > now
    }

    pub(super) fn span(&self) -> Span {
        Span {
            id: self.hold.id,
            from: self.granted,
            // A hold expires before every other event of that instant.
            to: self.ended.unwrap_or((self.until, 0)),
        }
    }
}

/// The time during which a store carried a hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) id: HoldId,
    pub(super) from: Stamp,
    pub(super) to: Stamp,
}
