//! The severity of the faults in a history.

use std::time::Duration;

use tower_distributed_lock_testing::{Fault, Faults};

/// A poll, and two round trips.
pub(super) const POLL: Duration = Duration::from_millis(1_050);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Delays only.
    Calm,
    /// Wake-ups are lost.
    Deaf,
    Flaky,
    Hostile,
}

impl Weather {
    pub(super) fn faults(self) -> Faults {
        let slow = Faults::none().chance(Fault::Slow, 0.7);
        match self {
            Self::Calm => slow,
            Self::Deaf => slow.chance(Fault::WakeupLost, 0.5),
            Self::Flaky => Faults::flaky(),
            Self::Hostile => Faults::hostile(),
        }
    }

    /// How long a free lock may remain untaken while a caller waits; `None` where faults allow any
    /// time.
    pub(super) fn bound(self) -> Option<Duration> {
        match self {
            Self::Calm => Some(POLL),
            // One poll finds the readers, which go first, and the next one the writers behind them.
            Self::Deaf => Some(2 * POLL),
            Self::Flaky | Self::Hostile => None,
        }
    }

    /// Whether the store loses no data.
    pub(super) fn keeps_data(self) -> bool {
        self != Self::Hostile
    }
}
