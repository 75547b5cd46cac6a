//! How bad things are.

use std::time::Duration;

use tower_distributed_lock::testing::{Fault, Faults};

/// A poll, and two ways there and back.
pub(super) const POLL: Duration = Duration::from_millis(1_050);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Slow, and nothing else.
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

    /// How long a free lock may stay untaken while somebody waits; `None` where faults allow anything.
    pub(super) fn bound(self) -> Option<Duration> {
        match self {
            Self::Calm => Some(POLL),
            // The readers who go first are woken by one poll, the writers behind them by the next.
            Self::Deaf => Some(2 * POLL),
            Self::Flaky | Self::Hostile => None,
        }
    }

    /// Whether the store forgets nothing.
    pub(super) fn keeps_data(self) -> bool {
        self != Self::Hostile
    }
}
