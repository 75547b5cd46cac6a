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
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FairnessYield {
    /// How many more releases to hear of.
    releases: usize,
    pause: Duration,
    /// The release that this process owes for.
    release: Option<Release>,
}

#[derive(Debug, Clone, Copy)]
struct Release {
    at: Instant,
    took: Duration,
    woke_others: bool,
    /// How many releases were heard of since, of other processes.
    heard: usize,
    /// Whether the first message to come is that of the release itself.
    echoes: bool,
}

impl FairnessYield {
    /// After a release that woke `listeners`, whose answer `took` so long. If this process `listens`, it is one of them,
    /// and hears of its own release first of all.
    pub(super) fn after(listeners: usize, listens: bool, took: Duration, now: Instant) -> Self {
        let woke_others = listeners > usize::from(listens);
        Self {
            releases: match woke_others {
                true => listeners,
                false => 0,
            },
            pause: (2 * took).clamp(PAUSE.0, PAUSE.1),
            release: Some(Release {
                at: now,
                took,
                woke_others,
                heard: 0,
                echoes: listens,
            }),
        }
    }

    /// For how long the next of them is given time to take the lock and be done with it; `None` if nothing is owed. When
    /// that is over, it may not want the lock any more.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (self.releases > 0).then_some(self.pause)
    }

    /// The end of a turn was heard of.
    pub(crate) fn heard_release(&mut self) {
        self.releases = self.releases.saturating_sub(1);
        if let Some(release) = &mut self.release {
            match release.echoes {
                true => release.echoes = false,
                false => release.heard += 1,
            }
        }
    }

    /// How long the turn of this process may be that begins now: a little longer than a turn of the others, which may be
    /// one section long, as those of Redisson. `None`: as long as the last one. `Some(None)`: as long as it likes, because
    /// no other process waits.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Option<Duration>> {
        let release = self.release?;
        if release.heard == 0 {
            // Those who were woken may be slow to ask.
            return (!release.woke_others).then_some(None);
        }
        let heard = u32::try_from(release.heard).unwrap_or(u32::MAX);
        let theirs = now.saturating_duration_since(release.at) / heard;
        // A message and a question.
        let theirs = theirs.saturating_sub(2 * release.took);
        let turn = theirs + theirs / 4;
        Some(Some(turn.max(2 * release.took).max(SHORTEST_TURN)))
    }
}
