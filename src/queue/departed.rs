//! A hold whose last share has ended.

use std::sync::Arc;

use tokio::time::Instant;

use super::wait_queue::Handoff;
use super::{Intent, Queues};
use crate::background::{Background, EndOfHold, HoldRelease};
use crate::store::Released;
use crate::watchdog::LiveHold;

/// The release of shares that have ended: of one, or of several.
pub(crate) type ShareRelease = HoldRelease<Departed>;

/// The last share of a hold has ended: the hold must be released in the store.
///
/// The next request asks only after the release was sent, or takes too long; a nested read asks only when nothing is left of the
/// previous one.
pub(crate) struct Departed {
    queues: Arc<Queues>,
    live: Arc<LiveHold>,
    /// When the share ended, while the turn of the next request waits for the release.
    turn_since: Option<Instant>,
    /// The turn, if it differs from that of the side of the hold. Boxed: most queues have no request that waits.
    special: Option<Box<(Intent, Handoff)>>,
}

impl Departed {
    /// `turn`: that of the next request.
    pub(super) fn new(
        queues: Arc<Queues>,
        live: &Arc<LiveHold>,
        now: Instant,
        turn: Option<(Intent, Handoff)>,
    ) -> Self {
        let turn_since = turn.is_some().then_some(now);
        let usual = Intent::of_side(live.hold.mode);
        let special =
            turn.filter(|(intent, handoff)| *intent != usual || handoff.wakeups.is_some());
        Self {
            queues,
            live: live.clone(),
            turn_since,
            special: special.map(Box::new),
        }
    }

    /// Whether the turn is that of a nested read.
    fn is_nested(&self) -> bool {
        let special = self.special.as_deref();
        special.is_some_and(|(intent, _)| intent.nested.is_some())
    }

    /// Passes the turn to the next request, unless one has taken it meanwhile.
    fn pass_turn(&mut self, released: Option<Released>) {
        let Some(since) = self.turn_since.take() else {
            return;
        };
        let (intent, mut handoff) = match self.special.take() {
            Some(special) => *special,
            None => (Intent::of_side(self.live.hold.mode), Handoff::default()),
        };
        if let Some(released) = released {
            handoff.released(released, since);
        }
        let (queues, key) = (&self.queues, &self.live.hold.key);
        let at = queues.at(Instant::now());
        let effects = queues.with(key, |state| state.released(&intent, handoff, at));
        queues.apply(key, effects);
    }
}

impl EndOfHold for Departed {
    fn live(&self) -> &Arc<LiveHold> {
        &self.live
    }

    fn background(&self) -> &Background {
        self.queues.background()
    }

    fn asked(&mut self, released: Released) {
        if !self.is_nested() {
            self.pass_turn(Some(released));
        }
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        self.pass_turn(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The future of each request that releases a lock contains one.
    #[test]
    fn the_release_of_a_share_is_small() {
        assert_eq!(size_of::<ShareRelease>(), 96);
    }
}
