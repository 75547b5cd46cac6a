//! Letting other processes go first.

use std::time::Duration;

/// The shortest and the longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// What a process that has had its turns owes to those who have heard of its release: a turn each.
///
/// They hear of it later than the process itself knows. If it asked again at once, they would hardly ever get the lock;
/// if it let only one of them go first, those two would take turns and the others would not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Courtesy {
    /// How many more releases to hear of.
    releases: usize,
    pause: Duration,
}

impl Courtesy {
    /// After a release that `listeners` have heard of, whose answer `took` so long. Whoever `listens` is one of them, and
    /// hears of that release first of all.
    pub(super) fn after(listeners: usize, listens: bool, took: Duration) -> Self {
        Self {
            releases: match listeners > usize::from(listens) {
                true => listeners,
                false => 0,
            },
            pause: (2 * took).clamp(PAUSE.0, PAUSE.1),
        }
    }

    /// For how long the next of them is given time to take the lock and be done with it; `None` if nothing is owed. When
    /// that is over, whoever it was may not want it any more.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (self.releases > 0).then_some(self.pause)
    }

    /// The end of a turn was heard of.
    pub(crate) fn paid(&mut self) {
        self.releases = self.releases.saturating_sub(1);
    }
}
