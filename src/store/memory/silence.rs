//! The time in which no waiter asks.

use std::time::Duration;

use tokio::time::Instant;

/// A living waiter asks every second. If none asks for longer, none can: the process was stopped, or its threads were blocked.
const SILENCE: Duration = Duration::from_millis(1200);

/// After such a silence the waiters have gone.
const LONGEST: Duration = Duration::from_secs(8);

/// The clock of those who wait for a key stands still in a silence, so that none is dead because of it. (6)
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// The last question of a waiter.
    asked: Option<Instant>,
    /// For how long the clock has stood still since.
    stood: Duration,
}

impl Silence {
    pub(super) fn since(now: Instant) -> Self {
        Self {
            asked: Some(now),
            stood: Duration::ZERO,
        }
    }

    /// For how long the clock has stood still since the last call; `None` if the waiters have gone.
    pub(super) fn go_on(&mut self, now: Instant) -> Option<Duration> {
        let Some(asked) = self.asked else {
            return Some(Duration::ZERO);
        };
        let silence = now.saturating_duration_since(asked);
        if silence >= LONGEST {
            *self = Self::default();
            return None;
        }
        let stood = silence.saturating_sub(SILENCE);
        let rest = stood.saturating_sub(self.stood);
        self.stood = stood;
        Some(rest)
    }
}
