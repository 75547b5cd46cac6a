//! The least time of a hold: until then the store keeps it, also after its last share and without this process.

use std::time::Duration;

use tokio::time::Instant;

use super::{Held, State};

/// The least time of a hold, and what has become of it. There is none before the first question.
#[derive(Debug)]
pub(super) struct Minimum {
    until: Instant,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The store was asked. Without its answer, it may keep the hold until then.
    Asked,
    Kept,
    /// The last share has ended before, and the keeper releases the hold then.
    Left,
}

impl Held {
    /// The store is asked to keep it until `until` at least.
    pub(crate) fn asks_until(&self, until: Instant) {
        let mut state = self.state.lock();
        if state.minimum(Step::Kept).is_none() {
            state.set_minimum(Step::Asked, until);
        }
    }

    /// The question had no effect.
    pub(crate) fn was_not_asked(&self) {
        let minimum = &mut self.state.lock().minimum;
        minimum.take_if(|minimum| minimum.step == Step::Asked);
    }

    /// The store keeps it until `until` at least. Returns `false` if it has ended.
    pub(crate) fn keep_until(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        let is_open = state.is_open();
        if is_open {
            let before = state.minimum(Step::Kept).unwrap_or(until);
            state.set_minimum(Step::Kept, until.max(before));
        }
        is_open
    }

    /// Without a share it is left in the store until its minimum is over: returns that time, unless it has come.
    pub(crate) fn leave(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let until = state.minimum(Step::Kept).filter(|until| *until > now)?;
        state.set_minimum(Step::Left, until);
        Some(until)
    }

    /// How long the store may carry it from now on.
    pub(crate) fn longest_rest(&self, now: Instant) -> Duration {
        let until = self.state.lock().minimum(Step::Asked).unwrap_or(now);
        let lease = self.lease.duration();
        lease.max(until.saturating_duration_since(now))
    }
}

impl State {
    /// The end of its minimum, once its last share has ended.
    pub(super) fn left_until(&self) -> Option<Instant> {
        self.minimum(Step::Left)
    }

    /// The end of its minimum, from this step on.
    fn minimum(&self, step: Step) -> Option<Instant> {
        let minimum = self.minimum.as_deref();
        Some(minimum.filter(|minimum| minimum.step >= step)?.until)
    }

    fn set_minimum(&mut self, step: Step, until: Instant) {
        self.minimum = Some(Box::new(Minimum { until, step }));
    }
}
