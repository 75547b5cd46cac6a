//! Letting other processes go first.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest and the longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// The shortest turn: many sections without work, and none that takes a millisecond.
const SHORTEST_TURN: Duration = Duration::from_micros(500);

/// What a process that has had its turn owes to the processes that were woken by its release: a turn each.
///
/// They hear of the release later than the process itself. If it asked again at once, they would hardly ever get the lock;
/// if it let only one of them go first, those two would take turns and the others would not.
#[derive(Debug)]
pub(crate) struct FairnessYield {
    /// How many more releases to hear of.
    owed: usize,
    pause: Duration,
    /// When the own release was answered, and how long that took.
    released: Instant,
    took: Duration,
    /// How many releases of other processes were heard of since.
    heard: u32,
    /// Whether the first message to come is that of the own release.
    echoes: bool,
}

impl FairnessYield {
    /// After a release that woke `listeners`, whose answer `took` so long; `None` if it woke no other process. If this
    /// process `listens`, it is one of them, and hears of its own release first of all.
    pub(super) fn after(
        listeners: usize,
        listens: bool,
        took: Duration,
        now: Instant,
    ) -> Option<Self> {
        (listeners > usize::from(listens)).then(|| Self {
            owed: listeners,
            pause: (2 * took).clamp(PAUSE.0, PAUSE.1),
            released: now,
            took,
            heard: 0,
            echoes: listens,
        })
    }

    /// For how long the next of them is given time to take the lock and be done with it; `None` if nothing is owed. When
    /// that is over, it may not want the lock any more.
    pub(super) fn pause(&self) -> Option<Duration> {
        (self.owed > 0).then_some(self.pause)
    }

    /// The end of a turn was heard of.
    pub(super) fn heard_release(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        match self.echoes {
            true => self.echoes = false,
            false => self.heard += 1,
        }
    }

    /// How long the turn of this process may be that begins now: a little longer than a turn of the others, which may be
    /// one section long, as those of Redisson. `None`: as long as the last one, because those who were woken may be slow to
    /// ask.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Duration> {
        let theirs = now
            .saturating_duration_since(self.released)
            .checked_div(self.heard)?;
        // A message and a question.
        let theirs = theirs.saturating_sub(2 * self.took);
        let turn = theirs + theirs / 4;
        Some(turn.max(2 * self.took).max(SHORTEST_TURN))
    }
}
