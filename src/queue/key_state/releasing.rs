//! A turn that does not come back: that of a release without an answer, or of a caller that is not polled.

use tokio::time::Instant;

use super::super::wait_queue::{Handoff, Head, WaitQueue};
use super::super::{At, Effect, Intent};
use super::KeyState;
use crate::cleanup::ANSWER_TIME;
use crate::lock::LockMode;
use crate::watchdog::Moment;

/// When a head last asked, or began its release, in tenths of a second, in four bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ReleaseTime(u32);

impl From<Instant> for ReleaseTime {
    fn from(at: Instant) -> Self {
        Self(Moment::from(at).tenths())
    }
}

impl ReleaseTime {
    /// Whether that is longer ago than a caller waits for a release, and than two questions of one that is polled are apart.
    fn is_long_ago(self, now: Instant) -> bool {
        // Less than zero if another thread has read the clock a little earlier.
        let tenths = Self::from(now).0.wrapping_sub(self.0) as i32;
        tenths >= (ANSWER_TIME.as_millis() / 100) as i32
    }
}

impl KeyState {
    /// Whether a new request gets the turn: there is no head, or it is overdue, and no request waits for it.
    ///
    /// The release may be left on a runtime that is not driven, and the question to a caller that is not polled. The turn is a matter of
    /// order: the store decides.
    pub(super) fn has_turn_for_new(&mut self, mode: LockMode, at: At) -> bool {
        *self.head(mode) == Head::Idle
            || self.is_overdue(mode, at) && self.queue(mode).is_none_or(WaitQueue::is_empty)
    }

    /// Passes the turn to the first request that waits, if it is overdue.
    pub(in crate::queue) fn pass_overdue_turn(&mut self, mode: LockMode, at: At) -> Option<Effect> {
        let is_overdue = !mode.is_permit() && self.is_overdue(mode, at);
        if !is_overdue {
            return None;
        }
        self.note_in_store(at);
        self.next(mode, Handoff::default())
    }

    /// A caller that is not polled neither asks again nor gives its turn up: it asks at least once in each poll's time otherwise.
    fn is_overdue(&mut self, mode: LockMode, at: At) -> bool {
        self.head(mode).is_in_store() && self.in_store.is_long_ago(at.now)
    }

    /// The head of a side asks the store, or releases there.
    pub(in crate::queue) fn note_in_store(&mut self, at: At) {
        self.in_store = at.now.into();
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
