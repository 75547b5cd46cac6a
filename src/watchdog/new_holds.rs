//! The holds that are not scheduled yet.

use std::mem;
use std::sync::Arc;

use super::live::{LiveHold, RenewalState};
use super::moment::Moment;

/// New holds, from their grant until the first renewal of any of them comes near. Most holds end before that.
///
/// A hold here is [`RenewalState::New`] with its place in `holds`.
#[derive(Default)]
pub(super) struct NewHolds {
    holds: Vec<Arc<LiveHold>>,
    /// Not later than the first look at any of them. It stays when a hold ends.
    settles: Option<Moment>,
}

impl NewHolds {
    /// Adds a hold. Returns the time of the first look at it.
    pub(super) fn enter(&mut self, live: &Arc<LiveHold>) -> Moment {
        let place = u32::try_from(self.holds.len()).expect("fewer holds than 2³²");
        let look = live.enter(place);
        self.holds.push(live.clone());
        self.settles = Some(self.settles.map_or(look, |settles| settles.min(look)));
        look
    }

    /// Removes the hold at this place.
    pub(super) fn remove(&mut self, place: u32) {
        self.holds.swap_remove(place as usize);
        if let Some(moved) = self.holds.get(place as usize) {
            moved.stand(RenewalState::New(place));
        }
    }

    /// When the holds are to be taken; `None` while there are none.
    pub(super) fn settles(&self) -> Option<Moment> {
        self.settles
    }

    /// Takes all holds.
    pub(super) fn take(&mut self) -> Vec<Arc<LiveHold>> {
        self.settles = None;
        mem::take(&mut self.holds)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        self.holds.iter()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.holds.len()
    }
}
