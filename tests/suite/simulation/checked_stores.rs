//! The books of one store, or of several that make a quorum.

use tokio::time::Instant;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Inspect, LockStore};

use super::book::Guarded;
use super::checked_store::CheckedStore;
use super::life::{Span, Stamp};
use crate::support::Flawed;

/// The number of stores that must carry a hold.
pub(super) struct CheckedStores<S = Flawed> {
    of: Vec<CheckedStore<S>>,
    needed: usize,
}

impl<S: LockStore + Inspect> CheckedStores<S> {
    /// Requires more than half of the stores.
    pub(super) fn new(of: Vec<CheckedStore<S>>) -> Self {
        let needed = of.len() / 2 + 1;
        Self { of, needed }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CheckedStore<S>> {
        self.of.iter()
    }

    /// The one checked_store of one store.
    pub(super) fn only(&self) -> &CheckedStore<S> {
        let [only] = &*self.of else {
            panic!("there are several stores");
        };
        only
    }

    /// Whether enough stores ever granted the hold.
    pub(super) fn have_granted(&self, hold: &Hold) -> bool {
        self.enough(|checked_store| checked_store.book().has_granted(hold))
    }

    /// Whether enough stores carry the hold now.
    pub(super) fn carry(&self, hold: &Hold) -> bool {
        self.enough(|checked_store| checked_store.book().carries(hold))
    }

    /// Whether grants to a client cover the deadline of its guard.
    pub(super) fn promised(&self, at: Guarded<'_>, deadline: Instant) -> bool {
        self.enough(|checked_store| checked_store.book().promised(at, deadline))
    }

    /// Whether enough stores carried one hold of a client at every moment between `from` and `to`.
    pub(super) fn carried(&self, at: Guarded<'_>, from: Stamp, to: Stamp) -> bool {
        let mut spans: Vec<Span> = Vec::new();
        for checked_store in &self.of {
            spans.extend(checked_store.book().spans(at));
        }
        spans.iter().any(|Span { id, .. }| {
            let spans = || spans.iter().filter(|span| span.id == *id);
            let ends = spans().map(|span| span.to);
            let ends = ends.filter(|end| from < *end && *end < to);
            // The number of carriers falls only at an end.
            ends.chain([from, to]).all(|moment| {
                let carriers = spans().filter(|span| span.from <= moment && moment < span.to);
                carriers.count() >= self.needed
            })
        })
    }

    /// Every key that was ever held, once for each store.
    pub(super) fn keys(&self) -> Vec<(&CheckedStore<S>, LockKey)> {
        let keys = |checked_store| CheckedStore::book(checked_store).keys().into_iter();
        let all = self.of.iter();
        all.flat_map(|checked_store| keys(checked_store).map(move |key| (checked_store, key)))
            .collect()
    }

    fn enough(&self, says: impl Fn(&CheckedStore<S>) -> bool) -> bool {
        self.of
            .iter()
            .filter(|checked_store| says(checked_store))
            .count()
            >= self.needed
    }
}
