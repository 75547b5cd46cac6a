//! The holds that are not scheduled yet.

use std::array;
use std::sync::Arc;

use smallvec::SmallVec;

use super::live::{LiveHold, RenewalState};
use super::moment::Moment;

/// How many slices of time there are. All of them take 34 s: longer than a third of the default lease.
const SLICES: usize = 256;

/// New holds, from their grant until their first renewal comes near. Most holds end before that.
///
/// A hold here is [`RenewalState::New`] with its slice, which follows from the time of its first look, and its place in that.
pub(super) struct NewHolds {
    slices: [Slice; SLICES],
    /// The first look at the first hold, at which a slice begins: so a simulation replays.
    origin: Option<Moment>,
}

#[derive(Default)]
struct Slice {
    /// Without an allocation while there are few.
    holds: SmallVec<[Arc<LiveHold>; 2]>,
    /// Not later than the first look at any of them. It stays when a hold ends.
    settles: Option<Moment>,
}

impl Default for NewHolds {
    fn default() -> Self {
        Self {
            slices: array::from_fn(|_| Slice::default()),
            origin: None,
        }
    }
}

impl NewHolds {
    /// Adds a hold. Returns the time of the first look at it.
    pub(super) fn enter(&mut self, live: &Arc<LiveHold>) -> Moment {
        let mut slice = 0;
        let look = live.enter(|look| {
            slice = self.slice_of(look);
            let place = u32::try_from(self.slices[usize::from(slice)].holds.len());
            let place = place.expect("fewer holds than 2³²");
            RenewalState::New(slice, place)
        });
        let slice = &mut self.slices[usize::from(slice)];
        slice.holds.push(live.clone());
        slice.settles = Some(slice.settles.map_or(look, |settles| settles.min(look)));
        look
    }

    /// Removes the hold at this place of a slice.
    pub(super) fn remove(&mut self, slice: u8, place: u32) {
        let holds = &mut self.slices[usize::from(slice)].holds;
        holds.swap_remove(place as usize);
        if let Some(moved) = holds.get(place as usize) {
            moved.stand(RenewalState::New(slice, place));
        }
    }

    /// When a slice is to be taken; `None` while there are no holds.
    pub(super) fn settles(&self) -> Option<Moment> {
        self.slices.iter().filter_map(|slice| slice.settles).min()
    }

    /// Takes holds of a slice in which a look has come, `most` of them. `None`: no look has come.
    pub(super) fn take(&mut self, now: Moment, most: usize) -> Option<Vec<Arc<LiveHold>>> {
        let mut slices = self.slices.iter_mut();
        let slice = slices.find(|slice| slice.settles.is_some_and(|settles| settles <= now))?;
        let left = slice.holds.len().saturating_sub(most);
        let taken = slice.holds.drain(left..).collect();
        if left == 0 {
            *slice = Slice::default();
        }
        Some(taken)
    }

    /// The slice of a look: one is 2²⁷ ns, or 0.13 s. A look that is more than all slices ahead shares one with earlier looks.
    fn slice_of(&mut self, look: Moment) -> u8 {
        const _: () = assert!(SLICES == 1 << u8::BITS);
        let origin = self.origin.get_or_insert(look).nanos();
        let since = look.nanos().wrapping_sub(origin);
        (since >> 27) as u8
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        self.slices.iter().flat_map(|slice| &slice.holds)
    }

    #[cfg(test)]
    pub(super) fn at(&self, slice: u8, place: u32) -> Option<&Arc<LiveHold>> {
        self.slices[usize::from(slice)].holds.get(place as usize)
    }
}
