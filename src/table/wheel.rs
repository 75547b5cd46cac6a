//! When the keeper visits each hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::hold::Held;

/// How many slots there are, and how much time is in one. All of them take 32 s: longer than a third of most leases.
const SLOTS: usize = 64;
const SLOT: Duration = Duration::from_millis(500);

/// An empty slot keeps room for so many holds, so that a hold that comes and goes allocates nothing.
const KEPT: usize = 8;

/// The place of a hold that is not in the wheel.
const NOWHERE: u32 = u32::MAX;

/// The holds of a shard by the time of their next visit: a slot, and a place in it, which the hold itself knows.
///
/// A visit that is further ahead than all slots shares one with earlier ones. Entering and leaving cost the same however many holds
/// there are.
#[derive(Default)]
pub(crate) struct Wheel {
    /// Made with the first hold.
    slots: Option<Box<[Slot; SLOTS]>>,
    /// The first visit of all, at which the first slot begins: so a simulation replays.
    origin: Option<Instant>,
    /// The earliest visit that was placed since this was last taken.
    earlier: Option<Instant>,
}

#[derive(Default)]
struct Slot {
    holds: Vec<(Instant, Arc<Held>)>,
    /// Not later than any visit in it.
    first: Option<Instant>,
}

impl Wheel {
    /// Visits `held` at `visit`, and not at another time.
    pub(crate) fn place(&mut self, held: &Arc<Held>, visit: Instant) {
        self.remove(held);
        let origin = *self.origin.get_or_insert(visit);
        let since = visit.saturating_duration_since(origin);
        let number = (since.as_millis() / SLOT.as_millis()) as usize % SLOTS;
        let slots = self.slots.get_or_insert_with(|| {
            let slots = (0..SLOTS).map(|_| Slot::default());
            let slots: Box<[Slot]> = slots.collect();
            slots
                .try_into()
                .unwrap_or_else(|_| unreachable!("it has the length"))
        });
        let slot = &mut slots[number];
        let place = slot.holds.len() * SLOTS + number;
        let place = u32::try_from(place).expect("fewer holds than 2²⁶ in a slot");
        held.place.store(place, Ordering::Relaxed);
        slot.holds.push((visit, held.clone()));
        slot.first = Some(slot.first.map_or(visit, |first| first.min(visit)));
        self.earlier = Some(self.earlier.map_or(visit, |earlier| earlier.min(visit)));
    }

    /// Does not visit it any more.
    pub(crate) fn remove(&mut self, held: &Arc<Held>) {
        let place = held.place.swap(NOWHERE, Ordering::Relaxed);
        if let (Some(slots), false) = (&mut self.slots, place == NOWHERE) {
            let (index, number) = (place as usize / SLOTS, place as usize % SLOTS);
            let slot = &mut slots[number];
            slot.holds.swap_remove(index);
            if let Some((_, moved)) = slot.holds.get(index) {
                moved.place.store(place, Ordering::Relaxed);
            }
            if slot.holds.is_empty() {
                slot.first = None;
                if slot.holds.capacity() > KEPT {
                    slot.holds = Vec::new();
                }
            }
        }
    }

    /// Takes up to `most` holds whose visit has come. Those whose visit is [near](Held::early) come with them.
    pub(crate) fn take(&mut self, now: Instant, most: usize) -> Vec<Arc<Held>> {
        let mut taken = Vec::new();
        let slots = self.slots.iter_mut().flat_map(|slots| &mut **slots);
        let due = slots.filter(|slot| slot.first.is_some_and(|first| first <= now));
        'taking: for slot in due {
            let mut first: Option<Instant> = None;
            for (visit, held) in &slot.holds {
                if taken.len() == most {
                    // The slot is looked at again.
                    break 'taking;
                }
                if *visit <= now + held.early(now) {
                    taken.push(held.clone());
                } else {
                    first = Some(first.map_or(*visit, |first| first.min(*visit)));
                }
            }
            slot.first = first;
        }
        taken.iter().for_each(|held| self.remove(held));
        taken
    }

    /// The first visit.
    pub(crate) fn first(&self) -> Option<Instant> {
        let slots = self.slots.iter().flat_map(|slots| &**slots);
        slots.filter_map(|slot| slot.first).min()
    }

    pub(super) fn take_earlier(&mut self) -> Option<Instant> {
        self.earlier.take()
    }
}
