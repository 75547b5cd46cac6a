//! When a hold is renewed, and how it is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{End, Held, State, valid_for};
use crate::lock::Lease;
use crate::store::undecided;

/// A renewal may come earlier by this part of its lease.
const EARLY: u32 = 30;

/// What the keeper does with a hold that it visits.
pub(crate) enum Due {
    /// It has ended, or its release has begun.
    Nothing,
    /// Its deadline has passed.
    Over,
    /// Its minimum is over: it is released in the store.
    Release,
    /// Nothing until then.
    Wait(Instant),
    /// It is renewed.
    Renew,
}

impl Held {
    /// It is granted to a request that may have it until `limit`. Returns when the keeper visits it first: at any time within a third
    /// of its lease, so that holds that were granted together are not renewed together ever after.
    pub(crate) fn granted(self: &mut Arc<Self>, limit: Option<Instant>, now: Instant) -> Instant {
        let third = self.lease.duration() / 3;
        let deadline = self.change(|state| {
            state.limit = limit;
            state.deadline
        });
        match self.lease {
            Lease::Renewed(_) => deadline.min(now + third / 1024 * fastrand::u32(256..1024)),
            Lease::Fixed(_) => deadline,
        }
    }

    /// How much earlier than at its next visit it may be renewed, so that it shares a question with others. What may come earlier is
    /// renewed then, and not visited a second time before its visit: otherwise the keeper might visit some holds for ever.
    pub(crate) fn early(&self, now: Instant) -> Duration {
        let state = self.state.lock();
        match self.next_lease(&state, now) {
            Some(_) if state.is_open() && !state.asked => self.lease.duration() / EARLY,
            _ => Duration::ZERO,
        }
    }

    /// What is due at `now`.
    pub(crate) fn due(&self, now: Instant) -> Due {
        let mut state = self.state.lock();
        if let Some(until) = state.left_until().filter(|_| state.end.is_none()) {
            if now < until {
                return Due::Wait(until);
            }
            // The store may have ended it by itself, which is no loss.
            state.end = Some(End::Unknown(undecided()));
            return Due::Release;
        }
        if !state.is_open() {
            return Due::Nothing;
        }
        if now >= state.deadline {
            return Due::Over;
        }
        if state.asked || self.next_lease(&state, now).is_none() {
            return Due::Wait(state.deadline);
        }
        state.asked = true;
        Due::Renew
    }

    /// The renewal that was under way has ended, and another may begin. Returns whether the hold is still to be renewed.
    pub(crate) fn was_asked(&self) -> bool {
        let mut state = self.state.lock();
        state.asked = false;
        state.is_open()
    }

    /// The lease of the next renewal; `None` if there is none.
    pub(crate) fn renewal(&self, now: Instant) -> Option<Duration> {
        let state = self.state.lock();
        self.next_lease(&state, now).filter(|_| state.is_open())
    }

    fn next_lease(&self, state: &State, now: Instant) -> Option<Duration> {
        let Lease::Renewed(lease) = self.lease else {
            return None;
        };
        match state.limit {
            None => Some(lease),
            Some(_) if self.is_at_limit(state) => None,
            Some(limit) => Some(lease.min(limit.saturating_duration_since(now))),
        }
    }

    /// Whether a renewal gains nothing: its lease was cut at its limit, from which its deadline is as far as from the end of a lease.
    fn is_at_limit(&self, state: &State) -> bool {
        let lease = self.lease.duration();
        let cut = state.deadline + (lease - valid_for(lease));
        state.limit.is_some_and(|limit| limit <= cut)
    }

    /// How long a renewal is overdue.
    pub(crate) fn overdue(&self, now: Instant) -> Duration {
        let lease = self.lease.duration();
        let left = self.deadline().saturating_duration_since(now);
        let due = valid_for(lease).saturating_sub(lease / 3);
        due.saturating_sub(left)
    }

    /// Why a hold whose deadline passed has ended.
    pub(crate) fn why_over(&self) -> &'static str {
        match self.lease {
            _ if self.is_at_limit(&self.state.lock()) => "max_hold",
            Lease::Fixed(_) => "lease_over",
            Lease::Renewed(_) => "not_renewed",
        }
    }
}
