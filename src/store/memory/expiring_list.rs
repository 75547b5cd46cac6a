//! Ordered entries with deadlines.

use tokio::time::Instant;

use crate::lock::HoldId;

/// Names in the order in which they were added, each with a deadline.
#[derive(Debug)]
pub(super) struct ExpiringList<T = HoldId>(Vec<(T, Instant)>);

impl<T> Default for ExpiringList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + PartialEq> ExpiringList<T> {
    /// Removes names whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|&(_, until)| until > now);
    }

    /// Sets the deadline of `name` to `until`. A name that is in the list keeps its position; a new
    /// one is added at the end.
    pub(super) fn put(&mut self, name: T, until: Instant) {
        match self.until_mut(name) {
            Some(present) => *present = until,
            None => self.0.push((name, until)),
        }
    }

    /// Removes `name`. Returns whether it was in the list.
    pub(super) fn remove(&mut self, name: T) -> bool {
        let place = self.0.iter().position(|&(present, _)| present == name);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// The deadline of `name`.
    pub(super) fn until(&self, name: T) -> Option<Instant> {
        let mut all = self.0.iter();
        all.find_map(|&(present, until)| (present == name).then_some(until))
    }

    pub(super) fn until_mut(&mut self, name: T) -> Option<&mut Instant> {
        let mut all = self.0.iter_mut();
        all.find_map(|(present, until)| (*present == name).then_some(until))
    }

    /// The first name, and its deadline.
    pub(super) fn first(&self) -> Option<(T, Instant)> {
        self.0.first().copied()
    }

    /// The latest deadline; `None` if the list is empty.
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
