//! The state machine of one key: the rules of [`LockStore`](crate::store::LockStore).
//!
//! Numbers in parentheses are those of its contract. Before every other method, the caller calls [`State::expire`] with the
//! present time, so that every entry is live.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::channel::{Channel, Wake};
use super::entries::{Entries, Entry, Part};
use crate::error::{StoreError, StoreErrorKind};
use crate::limits::after;
use crate::lock::{Hold, LockFamily, LockMode};
use crate::store::{Attempt, Holder, Inspection, Outcome, SHOWN, WAITER_LIVENESS, other_limit};

/// The holds of a key, its waiters, and its withdrawn attempts.
///
/// Holds are of one family. Beside an [`Exclusive`](Part::Exclusive) or a [`Write`](Part::Write) hold there is no other.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) entries: Entries,
    /// The limit of permits that was set for the key, or that the first holder has named.
    limit: Option<NonZeroU32>,
    /// It was set, and counts whatever limit an attempt names. Otherwise it counts while a permit is held.
    is_set: bool,
    /// The turn of waiters outside the line, and its end. It has no meaning if none waits in line.
    pub(super) outside: Option<(OutsideTurn, Instant)>,
}

/// The turns of waiters outside the line. So that the line is not overtaken again and again, it has the turn after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutsideTurn {
    /// A release woke some: they go before the first in line.
    First,
    /// An attempt without a place was granted a hold while others waited in line, until the end of its lease.
    Holding,
    /// That hold was released: while others wait in line, attempts without a place are refused.
    Over,
}

impl State {
    /// Removes what has ended. (2, 6)
    pub(super) fn expire(&mut self, now: Instant) {
        self.entries.expire(now);
        self.outside.take_if(|(_, until)| *until <= now);
    }

    /// Whether nothing is left that could change an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.limit().is_none()
    }

    /// Grants the attempt, without a token, or records it as waiting if it has patience.
    pub(super) fn ask(&mut self, attempt: &Attempt, now: Instant) -> Result<Outcome, StoreError> {
        let (hold, in_line) = (&attempt.hold, attempt.has_place());
        let outcome = self.evaluate(attempt, now)?;
        match outcome {
            Outcome::Granted { .. } => {
                let overtakes = !in_line && !self.holds(hold);
                let until = after(now, attempt.lease);
                self.stop_waiting(hold);
                self.live(hold, until);
                if overtakes {
                    self.take_outside_turn(hold.mode, until, now);
                }
            }
            Outcome::Refused { .. } if attempt.patience.is_some() => {
                let is_taken = match hold.mode {
                    LockMode::Permit(limit) => self.next_permit(limit).is_some(),
                    _ => !self.is_free(),
                };
                if in_line && is_taken {
                    self.end_outside_turn(hold.id);
                }
                self.wait(hold, in_line, after(now, WAITER_LIVENESS));
            }
            Outcome::Refused { .. } => {}
        }
        Ok(outcome)
    }

    /// The decision about an attempt. Changes nothing.
    pub(super) fn evaluate(&self, attempt: &Attempt, now: Instant) -> Result<Outcome, StoreError> {
        let hold = &attempt.hold;
        if self.entries.until(Part::Withdrawn, hold.id).is_some() {
            let why = "the attempt was withdrawn before it arrived"; // (5)
            return Err(StoreError::new(StoreErrorKind::Refused, why));
        }
        self.check_family(hold.mode.family())?;
        self.check_limit(hold)?;
        Ok(match self.obstacle(hold, attempt.has_place()) {
            // Never zero, because the obstacle is live.
            Some(until) => Outcome::Refused {
                retry_after: until - now,
            },
            None => Outcome::Granted { token: None },
        })
    }

    /// Renews the hold's lease; `false` if there is no such hold. It never shortens a lease. (2)
    pub(super) fn renew(&mut self, hold: &Hold, lease: Duration, now: Instant) -> bool {
        let present = self.until(hold);
        if let Some(present) = present {
            self.live(hold, after(now, lease).max(present));
        }
        present.is_some()
    }

    /// Whether there is such a hold.
    pub(super) fn holds(&self, hold: &Hold) -> bool {
        self.until(hold).is_some()
    }

    /// Ends the hold, and returns the channels to wake; `None` if there is no such hold.
    pub(super) fn release(&mut self, hold: &Hold) -> Option<Wake> {
        let held = self.entries.take(Part::held(hold.mode), hold.id);
        held.then(|| match hold.mode {
            LockMode::Reentrant => self.wake_exclusive(),
            LockMode::Fair => self.tell_next(),
            LockMode::Read if self.is_free() => self.wake(Channel::ReadWrite),
            LockMode::Read => Wake::new(),
            LockMode::Write => self.let_readers_go_first(),
            LockMode::Permit(_) => self.wake(Channel::Permits),
        })
    }

    /// Ends every hold, and returns the channels to wake; `None` if there is none.
    pub(super) fn force(&mut self) -> Option<Wake> {
        let (family, written) = (self.entries.family()?, self.entries.has(Part::Write));
        self.entries.end_holds();
        Some(match family {
            LockFamily::Permits => self.wake(Channel::Permits),
            LockFamily::Exclusive => self.wake_exclusive(),
            LockFamily::ReadWrite if written => self.let_readers_go_first(),
            LockFamily::ReadWrite => self.wake(Channel::ReadWrite),
        })
    }

    /// Wakes all that an exclusive hold has kept waiting: the line, the fair queue, and attempts without a place in either.
    fn wake_exclusive(&self) -> Wake {
        let mut wake = self.wake(Channel::Exclusive);
        if let Some(next) = self.next_queued() {
            wake.push(next);
        }
        wake
    }

    /// Sets the limit of permits, or leaves it to attempts, and says who is to be woken. (11)
    pub(super) fn set_permits(&mut self, limit: Option<NonZeroU32>) -> Result<Wake, StoreError> {
        self.check_family(LockFamily::Permits)?;
        let before = self.limit();
        self.limit = limit.or(before);
        self.is_set = limit.is_some();
        Ok(match limit > before && self.has_free_permit() {
            true => self.wake(Channel::Permits),
            false => Wake::new(),
        })
    }

    /// Withdraws an attempt, refuses copies of it until `memory`, and returns the channels to wake. (5)
    pub(super) fn withdraw(
        &mut self,
        attempt: &Attempt,
        memory: Option<Duration>,
        now: Instant,
    ) -> Wake {
        let hold = &attempt.hold;
        if let Some(memory) = memory {
            let until = after(now, memory);
            self.entries.put(Part::Withdrawn, hold.id, until);
        }
        let freed = self.stop_waiting(hold);
        self.release(hold).unwrap_or(freed)
    }

    /// The holders and the waiters.
    pub(super) fn inspect(&self, now: Instant) -> Inspection {
        let mut seen = Inspection {
            limit: self.limit().map(NonZeroU32::get),
            ..Inspection::default()
        };
        for Entry { part, id, until } in self.entries.iter() {
            let mode = match part {
                Part::Exclusive => Some(LockMode::Reentrant),
                Part::Write => Some(LockMode::Write),
                Part::Read => Some(LockMode::Read),
                Part::Permit => self.limit().map(LockMode::Permit),
                Part::Withdrawn => continue,
                _ => None,
            };
            match mode {
                Some(mode) if seen.holders.len() < SHOWN => {
                    let holder = Holder::new(id.to_string(), mode, *until - now);
                    seen.holders.push(holder);
                }
                None if seen.waiters.len() < SHOWN => seen.waiters.push(id.to_string()),
                _ => seen.truncated = true,
            }
        }
        seen
    }

    /// When the hold's lease ends; `None` if there is no such hold.
    fn until(&self, hold: &Hold) -> Option<Instant> {
        self.entries.until(Part::held(hold.mode), hold.id)
    }

    pub(super) fn is_free(&self) -> bool {
        self.entries.family().is_none()
    }

    /// Fails if the key is held by a lock of another family. (9)
    fn check_family(&self, family: LockFamily) -> Result<(), StoreError> {
        match self.entries.family().is_none_or(|held| held == family) {
            true => Ok(()),
            false => Err(StoreError::new(
                StoreErrorKind::Conflict,
                "the key is held by a lock of another family",
            )),
        }
    }

    /// Fails if other permits are held by a limit that an attempt has named. (4, 11)
    fn check_limit(&self, hold: &Hold) -> Result<(), StoreError> {
        match (hold.mode, self.limit()) {
            (LockMode::Permit(asked), Some(named))
                if !self.is_set && named != asked && !self.holds(hold) =>
            {
                Err(other_limit(named.get()))
            }
            _ => Ok(()),
        }
    }

    /// The limit of permits that counts now.
    fn limit(&self) -> Option<NonZeroU32> {
        let counts = self.is_set || self.entries.has(Part::Permit);
        self.limit.filter(|_| counts)
    }

    /// Whether a permit is free under the limit that counts now.
    pub(super) fn has_free_permit(&self) -> bool {
        let limit = self.limit();
        limit.is_some_and(|limit| self.next_permit(limit).is_none())
    }

    /// When the next permit expires; `None` if one is free.
    fn next_permit(&self, asked: NonZeroU32) -> Option<Instant> {
        let limit = self.limit().unwrap_or(asked).get() as usize;
        let permits = || self.entries.of(Part::Permit);
        // More are held than there are permits after a limit was lowered.
        let lacking = permits().count().checked_sub(limit)?;
        let mut ends: Vec<_> = permits().map(|entry| entry.until).collect();
        ends.sort_unstable();
        Some(ends[lacking])
    }

    /// Until when something stands in the way of `hold`, at the longest, or, of permits, until one comes free; `None` if
    /// nothing does. (1, 4, 6, 7, 10)
    fn obstacle(&self, hold: &Hold, in_line: bool) -> Option<Instant> {
        let entries = &self.entries;
        if self.holds(hold) {
            return None;
        }
        let before = |part| {
            let first: Option<&Entry> = entries.first(part);
            let other = first.filter(|first| first.id != hold.id);
            other.map(|first| first.until)
        };
        let outside = |which| {
            let turn = self.outside.filter(|(turn, _)| *turn == which)?;
            Some(turn.1)
        };
        let in_front = || match in_line {
            true => before(Part::InLine).or_else(|| outside(OutsideTurn::First)),
            false if entries.has(Part::InLine) => outside(OutsideTurn::Over),
            false => None,
        };
        match hold.mode {
            LockMode::Reentrant => entries.longest(Part::Exclusive).or_else(in_front),
            LockMode::Fair => {
                let holder = entries.longest(Part::Exclusive);
                holder.or_else(|| before(Part::Queued))
            }
            LockMode::Read => entries.longest(Part::Write).or_else(|| {
                let passes = entries.until(Part::Pass, hold.id).is_some();
                let writers = entries
                    .longest(Part::InLine)
                    .max(entries.longest(Part::Writer));
                writers.filter(|_| !passes)
            }),
            LockMode::Write => entries
                .longest(Part::Write)
                .max(entries.longest(Part::Read))
                .or_else(|| entries.longest(Part::Pass))
                .or_else(in_front),
            LockMode::Permit(limit) => self.next_permit(limit).or_else(in_front),
        }
    }

    /// Sets the end of the hold.
    fn live(&mut self, hold: &Hold, until: Instant) {
        match hold.mode {
            LockMode::Permit(limit) if self.limit().is_none() => self.limit = Some(limit),
            _ => {}
        }
        self.entries.put(Part::held(hold.mode), hold.id, until);
    }
}
