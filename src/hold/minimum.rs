//! The least time of a hold: until then the store keeps it, also after its last share and without this process.

use std::time::Duration;

use tokio::time::Instant;

use super::{Held, State};

/// The least time of a hold.
#[derive(Debug, Default)]
pub(super) struct Minimum {
    /// The latest end that the store was asked for. Without its answer, it may carry the hold until then.
    asked: Option<Instant>,
    /// The end: until then the store keeps it, also after its last share.
    until: Option<Instant>,
    /// Its last share has ended, and it is left in the store until then.
    is_left: bool,
}

impl Held {
    /// The store keeps it until `until` at least. Returns `false` if it has ended.
    pub(crate) fn keep_until(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        let minimum = state.minimum.get_or_insert_default();
        minimum.until = minimum.until.max(Some(until));
        state.is_open()
    }

    /// Its last share has ended, and the store keeps it until its minimum is over.
    pub(crate) fn leave(&self) {
        self.state.lock().minimum.get_or_insert_default().is_left = true;
    }

    /// How long the store may carry it from now on.
    pub(crate) fn longest_rest(&self, now: Instant) -> Duration {
        let minimum = &self.state.lock().minimum;
        let asked = minimum.as_ref().and_then(|minimum| minimum.asked);
        let asked = asked.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        self.lease.duration().max(asked)
    }

    /// The store is asked to keep it until `until` at least. Returns until when it was asked before.
    pub(crate) fn asks_until(&self, until: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let minimum = state.minimum.get_or_insert_default();
        let before = minimum.asked;
        minimum.asked = before.max(Some(until));
        before
    }

    /// The store was certainly not asked for more than `before`.
    pub(crate) fn was_not_asked(&self, before: Option<Instant>) {
        self.state.lock().minimum.get_or_insert_default().asked = before;
    }
}

impl State {
    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.minimum.as_ref()?.until
    }

    /// The same once its last share has ended.
    pub(super) fn left_until(&self) -> Option<Instant> {
        self.minimum
            .as_ref()
            .filter(|minimum| minimum.is_left)?
            .until
    }
}
