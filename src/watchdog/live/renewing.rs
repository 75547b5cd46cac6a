//! The renewals of a hold.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::{LiveHold, LiveState, Phase, valid_for};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::Lease;
use crate::watchdog::moment::Moment;

/// Where a hold stands in the [schedule](crate::watchdog::schedule::RenewalSchedule).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::watchdog) enum RenewalState {
    /// Nowhere: before it begins, and after it has ended.
    Absent,
    /// Among the new holds, in this slice at this place.
    New(u8, u32),
    Scheduled,
    Asked,
    /// Among the holds of this partition that wait until it answers.
    Failed(u16),
}

/// What the schedule finds when it looks at a hold.
pub(in crate::watchdog) enum Due {
    /// Its deadline has passed.
    Over,
    /// It is not renewed any more; the next look is at its deadline.
    Waits(Moment),
    /// It is to be renewed for this time, and is `Asked` now. Its deadline stays until the answer.
    Renews { lease: Duration, deadline: Moment },
}

/// A move of a hold to `Scheduled` or `Failed`. One that has ended stays `Absent`.
pub(in crate::watchdog) struct Placed {
    /// Where it stood, and when the schedule would have looked at it.
    pub(in crate::watchdog) before: (RenewalState, Moment),
    /// When the schedule looks at it next.
    pub(in crate::watchdog) look: Moment,
}

impl LiveHold {
    /// Where it stands, and when the schedule looks at it next.
    pub(in crate::watchdog) fn renewal(&self) -> (RenewalState, Moment) {
        let state = self.state();
        (state.renewal, state.look)
    }

    /// Moves it in the schedule. Returns where it stood, and when the schedule would have looked at it next.
    pub(in crate::watchdog) fn stand(&self, renewal: RenewalState) -> (RenewalState, Moment) {
        let mut state = self.state();
        (mem::replace(&mut state.renewal, renewal), state.look)
    }

    /// Enters the schedule as a new hold. Returns when it is first renewed: at any time within a third of its lease, short
    /// holds excepted, so that holds that were granted together are not renewed together ever after. `place`: where it stands.
    pub(in crate::watchdog) fn enter(&self, place: impl FnOnce(Moment) -> RenewalState) -> Moment {
        const PARTS: u64 = 1024;
        let mut state = self.state();
        state.look = state.deadline;
        if self.is_renewed {
            let part = fastrand::u64(PARTS / 4..=PARTS);
            let third = Duration::from_nanos(self.lease / (3 * PARTS) * part);
            state.look = state.look.min(state.confirmed + third);
        }
        // A request that shared it before had no watchdog to inform: the hold was not scheduled.
        if let Some(look) = state.take_extended(self.lease()) {
            state.look = state.look.min(look);
        }
        state.renewal = place(state.look);
        state.look
    }

    /// Moves it to `Scheduled` or `Failed`, with the next look at `look`; at its deadline at the latest.
    pub(in crate::watchdog) fn place(&self, renewal: RenewalState, look: Option<Moment>) -> Placed {
        self.state().place(renewal, look)
    }

    /// The look at a scheduled or failed hold; `None` if its time has not come. It may be as early as this part of its lease if it
    /// is a renewal.
    pub(in crate::watchdog) fn due(&self, now: Moment, early: Option<u32>) -> Option<Due> {
        let mut state = self.state();
        if state.look > now {
            let early = early.map_or(0, |part| self.lease / u64::from(part));
            let is_renewal = state.look < state.deadline;
            if !is_renewal || state.look > now + Duration::from_nanos(early) {
                return None;
            }
        }
        if now >= state.deadline {
            return Some(Due::Over);
        }
        Some(match (self.lease(), state.next_lease(self.lease(), now)) {
            (Lease::Renewed(_), Some(lease)) if state.renewal == RenewalState::Scheduled => {
                state.renewal = RenewalState::Asked;
                Due::Renews {
                    lease,
                    deadline: state.deadline,
                }
            }
            _ => {
                // Without another change, the next look is at the deadline.
                state.look = state.deadline;
                Due::Waits(state.look)
            }
        })
    }

    /// The store has renewed it for `lease`, as it was asked at `sent`. It is `Scheduled` to be renewed again a third of the lease
    /// later; earlier, if the renewal was cut short by a limit that was extended while it was under way.
    ///
    /// The deadline may become earlier if a limit shortened the lease. A renewal after the deadline has no effect.
    pub(in crate::watchdog) fn renewed(&self, sent: Instant, lease: Duration) -> Placed {
        let full = self.lease().duration();
        let sent = Moment::from(sent);
        let deadline = sent + valid_for(lease);
        let mut state = self.state();
        // Read under the mutex: a hold that was seen past its deadline stays lost.
        let in_time = Moment::from(Instant::now()) < state.deadline;
        #[cfg(test)]
        let in_time = in_time || exploration::has(Mutant::LateRenewal);
        // An answer that a later one has overtaken is ignored.
        if state.phase == Phase::Held && in_time && sent >= state.confirmed {
            state.deadline = deadline;
            state.confirmed = sent;
            state.renewals += 1;
        }
        let allowed = state.next_lease(self.lease(), sent).unwrap_or_default();
        let is_cut_too_short = lease < full && lease < allowed;
        let look = sent + if is_cut_too_short { lease } else { full } / 3;
        state.place(RenewalState::Scheduled, Some(look))
    }

    /// When the last question was sent that the store answered with a confirmation.
    pub(in crate::watchdog) fn confirmed(&self) -> Moment {
        self.state().confirmed
    }

    /// How long the renewal is overdue.
    pub(crate) fn overdue(&self) -> Duration {
        let since = Instant::from(self.state().confirmed).elapsed();
        since.saturating_sub(self.lease().duration() / 3)
    }

    /// The lease of the next renewal, cut at the limit. `None`: the limit is reached.
    pub(in crate::watchdog) fn next_lease(&self, now: Moment) -> Option<Duration> {
        self.state().next_lease(self.lease(), now)
    }

    /// Why a hold whose deadline passed has ended.
    pub(in crate::watchdog) fn why_over(&self) -> &'static str {
        let state = self.state();
        let unlimited = state.confirmed + self.lease().duration();
        match self.lease() {
            _ if state.limit < unlimited => "its longest hold was over",
            Lease::Fixed(_) => "its lease was over",
            Lease::Renewed(_) => "its lease was over before it was renewed",
        }
    }

    /// When to renew a hold whose lease was cut short, or whose renewals had ended, by a limit that was extended since. Returns
    /// it once. A hold that is not in the schedule yet keeps it until it enters.
    pub(crate) fn take_extended(&self) -> Option<Moment> {
        let mut state = self.state();
        match state.renewal {
            RenewalState::Absent => None,
            _ => state.take_extended(self.lease()),
        }
    }
}

impl LiveState {
    fn place(&mut self, renewal: RenewalState, look: Option<Moment>) -> Placed {
        let before = (self.renewal, self.look);
        if self.renewal != RenewalState::Absent {
            self.renewal = renewal;
            self.look = look.map_or(self.deadline, |look| look.min(self.deadline));
        }
        Placed {
            before,
            look: self.look,
        }
    }

    fn take_extended(&mut self, lease: Lease) -> Option<Moment> {
        if !mem::take(&mut self.extended) {
            return None;
        }
        let is_cut = self.deadline < self.confirmed + valid_for(lease.duration());
        let waits = self.look == self.deadline;
        let next = self.confirmed + self.deadline.since(self.confirmed) / 3;
        // A hand-over of a hold whose next look comes early enough does not take the watchdog's mutex.
        let is_late = next < self.look;
        ((is_cut || waits) && is_late && self.phase == Phase::Held).then_some(next)
    }

    fn next_lease(&self, lease: Lease, now: Moment) -> Option<Duration> {
        let is_over = self.limit <= now;
        (!is_over).then(|| lease.duration().min(self.limit.since(now)))
    }
}
