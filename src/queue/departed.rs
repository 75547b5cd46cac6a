//! A hold whose last share has ended.

use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::wait_queue::Handoff;
use super::{Intent, Queues};
use crate::background::{Background, EndOfHold, HoldRelease};
use crate::lock::{Hold, Owner};
use crate::store::{Released, Wakeups};
use crate::watchdog::LiveHold;

/// The release of shares that have ended: of one, or of several.
pub(crate) type ShareRelease = HoldRelease<Departed>;

/// The last share of a hold has ended: the hold must be released in the store.
///
/// The next request asks only after the release was sent, or takes too long; a nested read asks only when nothing is left of the
/// previous one.
pub(crate) struct Departed {
    pub(super) queues: Arc<Queues>,
    pub(super) live: Arc<LiveHold>,
    pub(super) turn: NextTurn,
}

/// The turn that waits for a release.
#[derive(Default)]
pub(super) enum NextTurn {
    /// None does.
    #[default]
    None,
    /// That of the next request of the hold's side.
    OfSide {
        /// When the last share ended.
        since: Instant,
        /// The subscription for it. Boxed: most queues have no request that waits.
        wakeups: Option<Box<Wakeups>>,
    },
    /// That of the next request of the owner of a nested read.
    Nested(Option<Owner>),
}

impl Departed {
    /// Passes the turn to the next request, unless one has taken it meanwhile.
    fn pass_turn(&mut self, released: Option<Released>) {
        let Hold { mode, id, .. } = self.live.hold;
        let (intent, handoff) = match mem::take(&mut self.turn) {
            NextTurn::None => return,
            NextTurn::OfSide { since, wakeups } => {
                let mut handoff = Handoff::from(wakeups.map(|wakeups| *wakeups));
                if let Some(released) = released {
                    handoff.released(released, since);
                }
                (Intent::of_side(mode), handoff)
            }
            NextTurn::Nested(owner) => {
                let nested = Some(id);
                let intent = Intent {
                    mode,
                    owner,
                    nested,
                };
                (intent, Handoff::default())
            }
        };
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
        if let NextTurn::OfSide { .. } = self.turn {
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
