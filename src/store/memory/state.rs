//! The state machine of one key: the rules of [`LockStore`](crate::store::LockStore).
//!
//! Numbers in parentheses are those of its contract. Before every other method, the caller calls [`State::expire`] with the
//! present time, so that every entry is live.

use std::mem;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::channel::{Channel, Wake};
use super::expiring_list::ExpiringList;
use super::permits::Permits;
use crate::error::{StoreError, StoreErrorKind};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::limits::after;
use crate::lock::{Hold, HoldId, LockFamily, LockMode};
use crate::store::{Attempt, Holder, Inspection, Outcome, SHOWN, WAITER_LIVENESS, other_limit};

mod waiters;

use waiters::NONE_WOKEN;

/// The holds of a key, its waiters, and its withdrawn attempts.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The hold that excludes others, of either family. With an exclusive hold there are no `reads`; with a write there is at
    /// most its owner's own.
    sole: Option<Sole>,
    /// The read holds.
    reads: ExpiringList,
    /// The permits. There are none beside a `sole` hold or `reads`.
    permits: Permits,
    /// Fair waiters, in the order in which they are granted.
    queue: ExpiringList,
    /// Waiting attempts for a `Reentrant` or `Write` hold: they block new readers.
    waiting: ExpiringList,
    /// Those of them with a place in line, in the order in which they are granted.
    line: ExpiringList,
    /// The turn of waiters outside the line, and its end. It has no meaning if none waits in line.
    outside: Option<(OutsideTurn, Instant)>,
    /// Waiting readers.
    readers: ExpiringList,
    /// The readers that waited when a writer released: they block writers. Empty while there is a writer.
    passes: ExpiringList,
    /// Attempts of which a copy may still arrive.
    withdrawn: ExpiringList<(LockMode, HoldId)>,
}

/// The turns of waiters outside the line. So that the line is not overtaken again and again, it has the turn after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutsideTurn {
    /// A release woke some: they go before the first in line.
    Now,
    /// An attempt without a place was granted a hold while others waited in line, until the end of its lease.
    Had,
    /// That hold was released: while others wait in line, attempts without a place are refused.
    Over,
}

#[derive(Debug)]
struct Sole {
    /// `Exclusive`: a `Reentrant` or `Fair` hold, which are alike once granted. `ReadWrite`: a `Write` hold. A permit is never
    /// here.
    family: LockFamily,
    id: HoldId,
    until: Instant,
}

impl State {
    /// Removes entries that have expired. (2, 6)
    pub(super) fn expire(&mut self, now: Instant) {
        self.sole.take_if(|sole| sole.until <= now);
        self.reads.expire(now);
        self.permits.expire(now);
        self.queue.expire(now);
        self.waiting.expire(now);
        self.outside.take_if(|(_, until)| *until <= now);
        self.readers.expire(now);
        self.passes.expire(now);
        self.withdrawn.expire(now);
        #[cfg(test)]
        if exploration::has(Mutant::WakesTheDead) {
            return;
        }
        self.line.expire(now);
    }

    /// Whether no entry is left that could change an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.is_free() && self.permits.is_idle() && !self.has_waiters() && self.withdrawn.is_empty()
    }

    /// Whether any attempt waits, or readers go before the next writer. `waiting` includes the line.
    fn has_waiters(&self) -> bool {
        let [queue, waiting] = [&self.queue, &self.waiting];
        let [readers, passes] = [&self.readers, &self.passes];
        [queue, waiting, readers, passes]
            .iter()
            .any(|list| !list.is_empty())
    }

    /// Grants the attempt, without a token, or records it as waiting if it has patience.
    pub(super) fn ask(&mut self, attempt: &Attempt, now: Instant) -> Result<Outcome, StoreError> {
        let hold = &attempt.hold;
        let in_line = attempt.stands_in_line();
        let outcome = self.evaluate(attempt, now)?;
        match outcome {
            Outcome::Granted { .. } => {
                let until = after(now, attempt.lease);
                let overtakes = !in_line && !self.holds(hold);
                self.grant(hold, until);
                if overtakes {
                    self.take_outside_turn(hold.mode, until, now);
                }
            }
            Outcome::Refused { .. } if attempt.patience.is_some() => {
                if in_line && !self.is_free() && self.is_first(hold) {
                    // The lock is taken: their turn is over.
                    self.outside.take_if(|(turn, _)| *turn == OutsideTurn::Now);
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
        if self.withdrawn.until((hold.mode, attempt.id)).is_some() {
            let why = "the attempt was withdrawn before it arrived"; // (5)
            return Err(StoreError::new(StoreErrorKind::Refused, why));
        }
        self.check_family(hold.mode.family())?;
        if let Some(limit) = self.other_limit(hold) {
            return Err(other_limit(limit.get()));
        }
        Ok(match self.obstacle(hold, attempt.stands_in_line()) {
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

    /// The end of the hold's lease; `None` if there is no such hold.
    fn until(&self, hold: &Hold) -> Option<Instant> {
        match hold.mode {
            LockMode::Read => self.reads.until(hold.id),
            LockMode::Permit(_) => self.permits.holds.until(hold.id),
            LockMode::Reentrant | LockMode::Fair | LockMode::Write => {
                let sole = self.sole.as_ref().filter(|sole| sole.is(hold))?;
                Some(sole.until)
            }
        }
    }

    /// Ends the hold, and returns the channels to wake; `None` if there is no such hold.
    pub(super) fn release(&mut self, hold: &Hold) -> Option<Wake> {
        let held = match hold.mode {
            LockMode::Read => self.reads.remove(hold.id),
            LockMode::Permit(_) => self.permits.remove(hold.id),
            _ => self.sole.take_if(|sole| sole.is(hold)).is_some(),
        };
        held.then(|| match hold.mode {
            LockMode::Reentrant => self.wake_exclusive(),
            LockMode::Fair => self.tell_next(),
            LockMode::Read if self.is_free() => self.wake(Channel::ReadWrite),
            LockMode::Read => NONE_WOKEN,
            LockMode::Write => self.let_readers_go_first(),
            LockMode::Permit(_) => self.wake(Channel::Permits),
        })
    }

    /// Ends every hold, and returns the channels to wake; `None` if there is none.
    pub(super) fn force(&mut self) -> Option<Wake> {
        if self.permits.clear() {
            return Some(self.wake(Channel::Permits));
        }
        let read = !mem::take(&mut self.reads).is_empty();
        match self.sole.take().map(|sole| sole.family) {
            Some(LockFamily::Exclusive | LockFamily::Permits) => Some(self.wake_exclusive()),
            Some(LockFamily::ReadWrite) => Some(self.let_readers_go_first()),
            None => read.then(|| self.wake(Channel::ReadWrite)),
        }
    }

    /// Sets the limit of permits, or leaves it to attempts, and says who is to be woken. (11)
    pub(super) fn set_permits(&mut self, limit: Option<NonZeroU32>) -> Result<Wake, StoreError> {
        self.check_family(LockFamily::Permits)?;
        let before = self.permits.free();
        self.permits.set(limit);
        let free = self.permits.free();
        Ok(match limit {
            Some(_) if free > 0 && free > before => self.wake(Channel::Permits),
            _ => NONE_WOKEN,
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
            self.withdrawn
                .put((hold.mode, attempt.id), after(now, memory));
        }
        let freed = self.stop_waiting(hold);
        self.release(hold).unwrap_or(freed)
    }

    /// The holders and the waiters.
    pub(super) fn inspect(&self, now: Instant) -> Inspection {
        let sole = self.sole.as_ref().map(|sole| match sole.family {
            LockFamily::Exclusive | LockFamily::Permits => {
                (LockMode::Reentrant, sole.id, sole.until)
            }
            LockFamily::ReadWrite => (LockMode::Write, sole.id, sole.until),
        });
        let reads = self
            .reads
            .iter()
            .map(|(id, until)| (LockMode::Read, id, until));
        let permits = self.permits.holds.iter();
        let permits = permits.map(|(id, until)| (self.permits.mode(), id, until));
        let holders = sole.into_iter().chain(reads).chain(permits);
        let waiters = [&self.queue, &self.passes, &self.waiting, &self.readers];
        let waiters = waiters.into_iter().flat_map(ExpiringList::iter);
        Inspection {
            truncated: holders.clone().count() > SHOWN || waiters.clone().count() > SHOWN,
            holders: holders
                .take(SHOWN)
                .map(|(mode, id, until)| Holder::new(id.to_string(), mode, until - now))
                .collect(),
            waiters: waiters.take(SHOWN).map(|(id, _)| id.to_string()).collect(),
            limit: self.permits.limit().map(NonZeroU32::get),
        }
    }

    fn is_free(&self) -> bool {
        self.sole.is_none() && self.reads.is_empty() && self.permits.is_free()
    }

    /// Fails if the key is held by a lock of another family. (9)
    fn check_family(&self, family: LockFamily) -> Result<(), StoreError> {
        let held = match &self.sole {
            Some(sole) => Some(sole.family),
            None if !self.reads.is_empty() => Some(LockFamily::ReadWrite),
            None if !self.permits.is_free() => Some(LockFamily::Permits),
            None => None,
        };
        match held.is_none_or(|held| held == family) {
            true => Ok(()),
            false => Err(StoreError::new(
                StoreErrorKind::Conflict,
                "the key is held by a lock of another family",
            )),
        }
    }

    /// The limit of permits that `hold` contradicts. (11)
    fn other_limit(&self, hold: &Hold) -> Option<NonZeroU32> {
        match hold.mode {
            LockMode::Permit(_) if self.holds(hold) => None, // (4)
            LockMode::Permit(asked) => self.permits.contradicts(asked),
            _ => None,
        }
    }

    /// Until when something stands in the way of `hold`, at the longest, or, of permits, until one comes free; `None` if
    /// nothing does. (10)
    fn obstacle(&self, hold: &Hold, in_line: bool) -> Option<Instant> {
        if self.holds(hold) {
            return None; // (4)
        }
        let sole = self.sole.as_ref().map(|sole| sole.until);
        let before = |queue: &ExpiringList| {
            let (first, until) = queue.first()?;
            (first != hold.id).then_some(until)
        };
        let in_front = || match in_line {
            true => before(&self.line).or_else(|| self.outside_turn(OutsideTurn::Now)),
            false => self
                .line
                .first()
                .and_then(|_| self.outside_turn(OutsideTurn::Over)),
        };
        match hold.mode {
            LockMode::Reentrant => sole.or_else(in_front),
            LockMode::Fair => sole.or_else(|| before(&self.queue)),
            LockMode::Read => match &self.sole {
                Some(writer) if writer.id == hold.id => None, // (1)
                Some(writer) => Some(writer.until),
                None if self.passes.until(hold.id).is_some() => None,
                None => self.waiting.longest(),
            },
            LockMode::Write => sole
                .max(self.reads.longest())
                .or(self.passes.longest())
                .or_else(in_front),
            LockMode::Permit(limit) => self.permits.next_free(limit).or_else(in_front),
        }
    }

    fn grant(&mut self, hold: &Hold, until: Instant) {
        if self.has_waiters() {
            self.stop_waiting(hold);
        }
        self.live(hold, until);
    }

    /// Sets the end of the hold. A writer lives at least as long as its own read. (2)
    fn live(&mut self, hold: &Hold, until: Instant) {
        let (id, family) = (hold.id, hold.mode.family());
        if hold.mode == LockMode::Read {
            self.reads.put(id, until);
            if let Some(writer) = &mut self.sole {
                writer.until = writer.until.max(until);
            }
            return;
        }
        if let LockMode::Permit(limit) = hold.mode {
            return self.permits.put(id, limit, until);
        }
        let until = self.reads.until(id).map_or(until, |read| read.max(until));
        self.sole = Some(Sole { family, id, until });
    }
}

impl Sole {
    fn is(&self, hold: &Hold) -> bool {
        self.id == hold.id && self.family == hold.mode.family()
    }
}
