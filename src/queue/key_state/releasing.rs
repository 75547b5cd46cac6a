//! The turn that waits for the release of a hold.

use tokio::time::Instant;

use super::super::wait_queue::{Handoff, Head, WaitQueue};
use super::super::{At, Effect, Intent};
use super::KeyState;
use crate::cleanup::ANSWER_TIME;
use crate::lock::LockMode;
use crate::watchdog::Moment;

/// When a release began, in tenths of a second, in four bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ReleaseTime(u32);

impl From<Instant> for ReleaseTime {
    fn from(at: Instant) -> Self {
        Self(Moment::from(at).tenths())
    }
}

impl ReleaseTime {
    /// Whether the release has taken longer than a caller waits for one.
    fn is_long_ago(self, now: Instant) -> bool {
        // Less than zero if another thread has read the clock a little earlier.
        let tenths = Self::from(now).0.wrapping_sub(self.0) as i32;
        tenths >= (ANSWER_TIME.as_millis() / 100) as i32
    }
}

impl KeyState {
    /// Whether a new request gets the turn: there is no head, or its release takes too long, and no request waits for it.
    ///
    /// The release may be left on a runtime that is not driven. The turn is a matter of order: the store decides.
    pub(super) fn has_turn_for_new(&mut self, mode: LockMode, at: At) -> bool {
        *self.head(mode) == Head::Idle
            || self.is_overdue(mode, at) && self.queue(mode).is_none_or(WaitQueue::is_empty)
    }

    /// Passes the turn to the first request that waits, if the release that has it takes too long.
    pub(in crate::queue) fn pass_overdue_turn(&mut self, mode: LockMode, at: At) -> Option<Effect> {
        let is_overdue = !mode.is_permit() && self.is_overdue(mode, at);
        is_overdue.then(|| self.next(mode, Handoff::default()))?
    }

    fn is_overdue(&mut self, mode: LockMode, at: At) -> bool {
        *self.head(mode) == Head::Releasing && self.releasing.is_long_ago(at.now)
    }

    /// A release with the turn was sent, or ends unsent.
    ///
    /// If it is late, the turn that it returns may be that of the next release. The request that gets it then asks before that
    /// release: this costs only order.
    pub(in crate::queue) fn released(
        &mut self,
        intent: &Intent,
        handoff: Handoff,
        at: At,
    ) -> Vec<Effect> {
        let has_turn = intent.nested.is_some() || *self.head(intent.mode) == Head::Releasing;
        match has_turn {
            true => self.yielded(intent, handoff, at),
            false => handoff.unused().into_iter().collect(),
        }
    }
}
