//! Ordered entries with deadlines.

use tokio::time::Instant;

use crate::lock::HoldId;

/// Names in the order in which they were added, each with a deadline.
///
/// Most lists of most keys are empty, so an empty one is `None`, and each is one word.
#[derive(Debug)]
pub(super) struct ExpiringList<T = HoldId>(
    #[expect(
        clippy::box_collection,
        reason = "a list is three words, a box is one, and it is seldom there"
    )]
    Option<Box<Vec<(T, Instant)>>>,
);

impl<T> Default for ExpiringList<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + PartialEq> ExpiringList<T> {
    /// Removes names whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        if let Some(all) = &mut self.0 {
            all.retain(|&(_, until)| until > now);
            self.settle();
        }
    }

    /// Sets the deadline of `name` to `until`. A name that is in the list keeps its position; a new
    /// one is added at the end.
    pub(super) fn put(&mut self, name: T, until: Instant) {
        match self.until_mut(name) {
            Some(present) => *present = until,
            None => self.0.get_or_insert_default().push((name, until)),
        }
    }

    /// Removes `name`. Returns whether it was in the list.
    pub(super) fn remove(&mut self, name: T) -> bool {
        let Some(all) = &mut self.0 else {
            return false;
        };
        let place = all.iter().position(|&(present, _)| present == name);
        let removed = place.map(|place| all.remove(place)).is_some();
        self.settle();
        removed
    }

    /// The deadline of `name`.
    pub(super) fn until(&self, name: T) -> Option<Instant> {
        let mut all = self.iter();
        all.find_map(|(present, until)| (present == name).then_some(until))
    }

    pub(super) fn until_mut(&mut self, name: T) -> Option<&mut Instant> {
        let mut all = self.0.iter_mut().flat_map(|all| all.iter_mut());
        all.find_map(|(present, until)| (*present == name).then_some(until))
    }

    /// The first name, and its deadline.
    pub(super) fn first(&self) -> Option<(T, Instant)> {
        self.0.as_ref()?.first().copied()
    }

    /// The latest deadline; `None` if the list is empty.
    pub(super) fn longest(&self) -> Option<Instant> {
        self.iter().map(|(_, until)| until).max()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (T, Instant)> + Clone {
        let all = self.0.iter();
        all.flat_map(|all| all.iter().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// An empty list is `None`.
    fn settle(&mut self) {
        self.0.take_if(|all| all.is_empty());
    }
}
