//! Yields to other processes.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest and the longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// The shortest turn: long enough for many empty sections, shorter than a section of a millisecond.
const SHORTEST_TURN: Duration = Duration::from_micros(500);

/// The first section of the others causes so many messages: the call to the first in line, the acknowledgement of its
/// subscription to the others' channel, and the end of the section. A process that was first in line already misses the
/// call, and counts a section too few, so it never enters more often than the others did.
const ONE_SECTION: u32 = 3;

/// The number of hand-overs in the next turn of this process, where the store gives waiters outside its line their turn. It
/// has got so many `messages` since its last turn, and enters as often in a row as the others did.
pub(super) fn handovers_like_theirs(messages: u32) -> u32 {
    messages.saturating_sub(ONE_SECTION)
}

/// How long a process yields after its turn, in a store without a line, such as a quorum: its release wakes every process that
/// listens, and nothing else says how long they take. A store with a line orders the processes, and none yields.
/// Each of the processes that the release woke gets a turn.
///
/// The wake-up reaches them later than the release is answered here. If this process asked again at once, they would rarely
/// get the lock. If it let only one of them go first, these two would alternate and the others would starve.
#[derive(Debug)]
pub(crate) struct FairnessYield {
    /// How many more releases to wait for.
    owed: usize,
    pause: Duration,
    /// When the release of this process was answered, and how long the answer took.
    released: Instant,
    took: Duration,
    /// How many releases of other processes were reported since.
    releases: u32,
    /// Whether the next message is that of this process's own release.
    echoes: bool,
}

impl FairnessYield {
    /// The yield after a release that began at `since`, woke `listeners` and is answered now. If this process `listens`, it is one
    /// of them, and gets the message of its own release first.
    pub(super) fn after(listeners: usize, listens: bool, since: Instant) -> Self {
        let now = Instant::now();
        let took = now - since;
        Self {
            owed: listeners,
            pause: (2 * took).clamp(PAUSE.0, PAUSE.1),
            released: now,
            took,
            releases: 0,
            echoes: listens,
        }
    }

    /// How long the next process has to take and release the lock; `None` if no turn is owed. After that time, it may not
    /// want the lock any more.
    pub(super) fn pause(&self) -> Option<Duration> {
        (self.owed > 0).then_some(self.pause)
    }

    /// Whether the woken processes have had their time since the release.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.owed == 0 || now.saturating_duration_since(self.released) >= self.pause
    }

    /// A message has come: another process has released.
    pub(super) fn count_message(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        match self.echoes {
            true => self.echoes = false,
            false => self.releases += 1,
        }
    }

    /// The length of this process's next turn: slightly longer than a turn of the other processes. Their turn may be one section,
    /// as Redisson's is. `None`: as long as the last one, because the woken processes may be slow to ask.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Duration> {
        let theirs = now
            .saturating_duration_since(self.released)
            .checked_div(self.releases)?;
        // Subtracts the time of a message and of a question.
        let theirs = theirs.saturating_sub(2 * self.took);
        let turn = theirs + theirs / 4;
        Some(turn.max(2 * self.took).max(SHORTEST_TURN))
    }
}
