//! What a key has: one list of entries that end by themselves.

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::lock::{HoldId, LockFamily, LockMode};

/// An entry of a client in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A `Reentrant` or a `Fair` hold, which are alike once granted.
    Exclusive,
    /// A `Write` hold.
    Write,
    /// A `Read` hold.
    Read,
    /// A permit.
    Permit,
    /// A place in the fair queue.
    Queued,
    /// A place in line, for a `Reentrant` or a `Write` hold or a permit. It blocks new readers.
    InLine,
    /// A wait for a `Write` hold without a place. It blocks new readers, too.
    Writer,
    /// A wait for a `Read` hold.
    Reader,
    /// The turn of a reader that waited when a writer released. It blocks writers. There is none while there is a writer.
    Pass,
    /// An attempt of which a copy may still arrive.
    Withdrawn,
}

impl Part {
    /// The hold of such an attempt.
    pub(super) fn held(mode: LockMode) -> Self {
        match mode {
            LockMode::Reentrant | LockMode::Fair => Self::Exclusive,
            LockMode::Write => Self::Write,
            LockMode::Read => Self::Read,
            LockMode::Permit(_) => Self::Permit,
        }
    }

    /// The family of a hold; `None` if it is not one.
    pub(super) fn family(self) -> Option<LockFamily> {
        match self {
            Self::Exclusive => Some(LockFamily::Exclusive),
            Self::Write | Self::Read => Some(LockFamily::ReadWrite),
            Self::Permit => Some(LockFamily::Permits),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) part: Part,
    pub(super) id: HoldId,
    pub(super) until: Instant,
}

/// Entries in the order in which they were added, which is that of the queue and of the line. Each part of an id is there once.
///
/// A key has few, mostly one hold, so a scan is faster than an index. `soonest` is no later than the end of any entry, so that
/// nothing is scanned for what has ended before something has.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: SmallVec<[Entry; 1]>,
    soonest: Option<Instant>,
}

impl Entries {
    /// Removes what has ended.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.soonest.is_some_and(|soonest| soonest <= now) {
            self.all.retain(|entry| entry.until > now);
            self.soonest = self.all.iter().map(|entry| entry.until).min();
        }
    }

    /// Sets the end of an entry. One that is there keeps its position; a new one is the last.
    pub(super) fn put(&mut self, part: Part, id: HoldId, until: Instant) {
        match self.get_mut(part, id) {
            Some(entry) => entry.until = until,
            None => self.all.push(Entry { part, id, until }),
        }
        self.soonest = Some(self.soonest.map_or(until, |soonest| soonest.min(until)));
    }

    /// Removes an entry. Returns whether it was there.
    pub(super) fn take(&mut self, part: Part, id: HoldId) -> bool {
        let mut all = self.all.iter();
        let place = all.position(|entry| entry.part == part && entry.id == id);
        place.map(|place| self.all.remove(place)).is_some()
    }

    pub(super) fn end_holds(&mut self) {
        self.all.retain(|entry| entry.part.family().is_none());
    }

    /// Makes every entry of one part that of another.
    pub(super) fn turn(&mut self, from: Part, to: Part) {
        let turned = self.all.iter_mut().filter(|entry| entry.part == from);
        turned.for_each(|entry| entry.part = to);
    }

    pub(super) fn until(&self, part: Part, id: HoldId) -> Option<Instant> {
        let mut of = self.of(part);
        of.find(|entry| entry.id == id).map(|entry| entry.until)
    }

    fn get_mut(&mut self, part: Part, id: HoldId) -> Option<&mut Entry> {
        let mut all = self.all.iter_mut();
        all.find(|entry| entry.part == part && entry.id == id)
    }

    pub(super) fn of(&self, part: Part) -> impl Iterator<Item = &Entry> {
        self.all.iter().filter(move |entry| entry.part == part)
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.first(part).is_some()
    }

    pub(super) fn first(&self, part: Part) -> Option<&Entry> {
        self.of(part).next()
    }

    /// The latest end of any entry of this part.
    pub(super) fn longest(&self, part: Part) -> Option<Instant> {
        self.of(part).map(|entry| entry.until).max()
    }

    /// The family of the holds, which is one.
    pub(super) fn family(&self) -> Option<LockFamily> {
        self.all.iter().find_map(|entry| entry.part.family())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.all.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
