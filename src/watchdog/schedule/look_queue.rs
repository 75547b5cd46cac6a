//! The queue of the looks at holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::watchdog::live::LiveHold;
use crate::watchdog::moment::Moment;

/// Looks at holds, by their time.
///
/// Holds that were renewed together have one time: a batch of them costs as much as a single one. There are not many more than a
/// batch with the same time, except when the task of the renewals has ended: the next one asks again for all at once.
#[derive(Default)]
pub(super) struct LookQueue(BTreeMap<Moment, Vec<Arc<LiveHold>>>);

impl LookQueue {
    pub(super) fn push(&mut self, at: Moment, live: Arc<LiveHold>) {
        self.0.entry(at).or_default().push(live);
    }

    /// Removes the look at a hold that was planned for this time.
    pub(super) fn remove(&mut self, at: Moment, live: &Arc<LiveHold>) {
        let Some(holds) = self.0.get_mut(&at) else {
            return;
        };
        if let Some(place) = holds.iter().position(|hold| Arc::ptr_eq(hold, live)) {
            holds.swap_remove(place);
        }
        if holds.is_empty() {
            self.0.remove(&at);
        }
    }

    /// The time of the first look.
    pub(super) fn first(&self) -> Option<Moment> {
        self.0.first_key_value().map(|(at, _)| *at)
    }

    /// Takes the first look if `is_due` says so of its hold.
    pub(super) fn pop_if<D>(
        &mut self,
        is_due: impl FnOnce(&LiveHold) -> Option<D>,
    ) -> Option<(Arc<LiveHold>, D)> {
        let mut first = self.0.first_entry()?;
        let holds = first.get_mut();
        let due = is_due(holds.last()?)?;
        let live = holds.pop()?;
        if holds.is_empty() {
            first.remove();
        }
        Some((live, due))
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        self.0.values().flatten()
    }

    #[cfg(test)]
    pub(super) fn has(&self, at: Moment, live: &Arc<LiveHold>) -> bool {
        let holds = self.0.get(&at);
        holds.is_some_and(|holds| holds.iter().any(|hold| Arc::ptr_eq(hold, live)))
    }
}
