//! Names that stand for a while.

use tokio::time::Instant;

use crate::lock::HoldId;

/// Names in the order in which they came, each until a time of its own.
#[derive(Debug)]
pub(super) struct Roster<T = HoldId>(Vec<(T, Instant)>);

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + PartialEq> Roster<T> {
    /// Removes those whose time has come.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|&(_, until)| until > now);
    }

    /// Lets `name` stand until `until`. A name that is there keeps its place; a new one comes last.
    pub(super) fn put(&mut self, name: T, until: Instant) {
        match self.until_mut(name) {
            Some(present) => *present = until,
            None => self.0.push((name, until)),
        }
    }

    /// Removes `name`, and says whether it was there.
    pub(super) fn remove(&mut self, name: T) -> bool {
        let place = self.0.iter().position(|&(present, _)| present == name);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// Until when `name` stands.
    pub(super) fn until(&self, name: T) -> Option<Instant> {
        let mut all = self.0.iter();
        all.find_map(|&(present, until)| (present == name).then_some(until))
    }

    pub(super) fn until_mut(&mut self, name: T) -> Option<&mut Instant> {
        let mut all = self.0.iter_mut();
        all.find_map(|(present, until)| (*present == name).then_some(until))
    }

    /// The first name, and until when it stands.
    pub(super) fn first(&self) -> Option<(T, Instant)> {
        self.0.first().copied()
    }

    /// Until when the last of them stands; `None` if the list is empty.
    pub(super) fn longest(&self) -> Option<Instant> {
        self.0.iter().map(|&(_, until)| until).max()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (T, Instant)> + Clone {
        self.0.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
