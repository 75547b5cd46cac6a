//! One key of a survey.

use tokio::time::Instant;

use crate::queue::KeyView;
use crate::telemetry::{Route, StoreWaiter};

/// A key, and the requests of this process that the store has refused.
pub(super) struct Row {
    pub(super) view: KeyView,
    /// The number of waiting requests, in the process and for the store.
    pub(super) waiters: usize,
    pub(super) first_waiter: Option<Instant>,
    /// The route of the holder here, or of the first request that waits for the store.
    pub(super) route: Route,
}

impl Row {
    pub(super) fn new(view: KeyView, refused: &[StoreWaiter]) -> Self {
        let first = refused.iter().min_by_key(|waiter| waiter.since);
        let held = view.hold.as_ref().map(|hold| &hold.route);
        let route = held.or(first.map(|waiter| &waiter.route));
        let first_waiter = view.first_waiter.into_iter();
        Self {
            waiters: view.waiters + refused.len(),
            first_waiter: first_waiter.chain(first.map(|waiter| waiter.since)).min(),
            route: route.cloned().unwrap_or_default(),
            view,
        }
    }

    /// Whether this process holds it.
    pub(super) fn is_held(&self) -> bool {
        self.view.hold.is_some()
    }

    /// When the holder of this process got it; otherwise when the first request began to wait.
    pub(super) fn began(&self) -> Option<Instant> {
        let held = self.view.hold.as_ref().map(|hold| hold.since);
        held.or(self.first_waiter)
    }

    pub(super) fn mode(&self) -> &'static str {
        let held = self.view.hold.as_ref().map(|hold| hold.mode.as_str());
        held.or(self.view.wanted).unwrap_or_default()
    }
}
