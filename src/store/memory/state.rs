//! The state machine of one key: the rules of [`LockStore`](crate::store::LockStore).
//!
//! Numbers in parentheses are those of its contract. Every method but [`State::expire`] expects that to have been called
//! with the present time, so that whatever stands here is live.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::channel::{Channel, Wake};
use super::roster::Roster;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, HoldId, LockFamily, LockMode};
use crate::store::{Attempt, Holder, Inspection, SHOWN, WAITER_LIVENESS};

const NOBODY: Wake = [None, None];
const EVERYBODY_IN_NO_ORDER: Wake = [Some(Channel::Exclusive), None];
const READERS_AND_WRITERS: Wake = [Some(Channel::ReadWrite), None];

/// Who holds a key, who waits for it, and who may not have it any more.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The hold that excludes others, of either family. Beside an exclusive one there are no `reads`; beside a write
    /// there is at most its owner's own.
    sole: Option<Sole>,
    /// The read holds.
    reads: Roster,
    /// Fair waiters, in the order in which they are served.
    queue: Roster,
    /// Waiting writers: they hold back new readers.
    writers: Roster,
    /// Waiting readers.
    readers: Roster,
    /// The readers that were waiting when a writer left: they hold back writers. Empty while there is a writer.
    passes: Roster,
    /// Attempts of which a copy may still arrive.
    withdrawn: Roster<(LockMode, HoldId)>,
}

#[derive(Debug)]
struct Sole {
    /// `Exclusive`: a `Reentrant` or `Fair` hold, which are the same thing once granted. `ReadWrite`: a `Write` hold.
    family: LockFamily,
    id: HoldId,
    until: Instant,
}

/// What an attempt comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    /// Never zero: what stands in the way is live.
    Refused {
        retry_after: Duration,
    },
    Withdrawn,
    Conflict,
}

impl Verdict {
    /// For how long at most it is refused; `None` if it is granted.
    pub(super) fn refusal(self) -> Result<Option<Duration>, StoreError> {
        match self {
            Self::Granted => Ok(None),
            Self::Refused { retry_after } => Ok(Some(retry_after)),
            Self::Withdrawn => Err(StoreError::new(
                StoreErrorKind::Refused,
                "the attempt was withdrawn before it arrived",
            )),
            Self::Conflict => Err(StoreError::new(
                StoreErrorKind::Conflict,
                "the key is held by a lock of another family",
            )),
        }
    }
}

impl State {
    /// Removes whatever has had its time. (2, 6)
    pub(super) fn expire(&mut self, now: Instant) {
        self.sole.take_if(|sole| sole.until <= now);
        self.reads.expire(now);
        self.queue.expire(now);
        self.writers.expire(now);
        self.readers.expire(now);
        self.passes.expire(now);
        self.withdrawn.expire(now);
    }

    /// Whether nothing is left that could change an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.is_free()
            && self.queue.is_empty()
            && self.writers.is_empty()
            && self.readers.is_empty()
            && self.passes.is_empty()
            && self.withdrawn.is_empty()
    }

    /// Grants the attempt, or remembers it as waiting if it has the patience.
    pub(super) fn ask(&mut self, attempt: &Attempt, now: Instant) -> Verdict {
        let hold = &attempt.hold;
        let verdict = self.weigh(hold, now);
        match verdict {
            Verdict::Granted => self.grant(hold, after(now, attempt.lease)),
            Verdict::Refused { .. } if attempt.patience.is_some() => {
                self.wait(hold, after(now, WAITER_LIVENESS));
            }
            _ => {}
        }
        verdict
    }

    /// What an attempt to get `hold` would come to.
    pub(super) fn weigh(&self, hold: &Hold, now: Instant) -> Verdict {
        if self.withdrawn.until((hold.mode, hold.id)).is_some() {
            return Verdict::Withdrawn; // (5)
        }
        if self.is_held_by_other_than(hold.mode.family()) {
            return Verdict::Conflict;
        }
        match self.obstacle(hold) {
            Some(until) => Verdict::Refused {
                retry_after: until - now,
            },
            None => Verdict::Granted,
        }
    }

    /// Begins the hold's lease anew; false if there is no such hold. It shortens no life. (2)
    pub(super) fn renew(&mut self, hold: &Hold, lease: Duration, now: Instant) -> bool {
        let present = match hold.mode {
            LockMode::Read => self.reads.until(hold.id),
            _ => self
                .sole
                .as_ref()
                .filter(|sole| sole.is(hold))
                .map(|sole| sole.until),
        };
        if let Some(present) = present {
            self.live(hold, after(now, lease).max(present));
        }
        present.is_some()
    }

    /// Whether there is such a hold.
    pub(super) fn holds(&self, hold: &Hold) -> bool {
        match hold.mode {
            LockMode::Read => self.reads.until(hold.id).is_some(),
            _ => self.sole.as_ref().is_some_and(|sole| sole.is(hold)),
        }
    }

    /// Ends the hold, and says who is to be woken; `None` if there is no such hold.
    pub(super) fn release(&mut self, hold: &Hold) -> Option<Wake> {
        let held = match hold.mode {
            LockMode::Read => self.reads.remove(hold.id),
            _ => self.sole.take_if(|sole| sole.is(hold)).is_some(),
        };
        held.then(|| match hold.mode {
            LockMode::Reentrant => EVERYBODY_IN_NO_ORDER,
            LockMode::Fair => self.tell_next(),
            LockMode::Read if self.is_free() => READERS_AND_WRITERS,
            LockMode::Read => NOBODY,
            LockMode::Write => self.let_readers_go_first(),
        })
    }

    /// Ends every hold, and says who is to be woken; `None` if there is none.
    pub(super) fn force(&mut self) -> Option<Wake> {
        let read = !mem::take(&mut self.reads).is_empty();
        match self.sole.take().map(|sole| sole.family) {
            Some(LockFamily::Exclusive) => Some([Some(Channel::Exclusive), self.next()]),
            Some(LockFamily::ReadWrite) => Some(self.let_readers_go_first()),
            None => read.then_some(READERS_AND_WRITERS),
        }
    }

    /// Takes back whatever an attempt has left, refuses it for as long as `memory` says, and says who is to be
    /// woken. (5)
    pub(super) fn withdraw(&mut self, hold: &Hold, memory: Option<Duration>, now: Instant) -> Wake {
        if let Some(memory) = memory {
            self.withdrawn.put((hold.mode, hold.id), after(now, memory));
        }
        let freed = self.stop_waiting(hold);
        self.release(hold).unwrap_or(freed)
    }

    /// Who holds, and who waits.
    pub(super) fn inspect(&self, now: Instant) -> Inspection {
        let sole = self.sole.as_ref().map(|sole| match sole.family {
            LockFamily::Exclusive => (LockMode::Reentrant, sole.id, sole.until),
            LockFamily::ReadWrite => (LockMode::Write, sole.id, sole.until),
        });
        let reads = self
            .reads
            .iter()
            .map(|(id, until)| (LockMode::Read, id, until));
        let holders = sole.into_iter().chain(reads);
        let waiters = [&self.queue, &self.passes, &self.writers, &self.readers];
        let waiters = waiters.into_iter().flat_map(Roster::iter);
        Inspection {
            truncated: holders.clone().count() > SHOWN || waiters.clone().count() > SHOWN,
            holders: holders
                .take(SHOWN)
                .map(|(mode, id, until)| Holder::new(id.to_string(), mode, until - now))
                .collect(),
            waiters: waiters.take(SHOWN).map(|(id, _)| id.to_string()).collect(),
        }
    }

    /// A writer is gone: the readers that wait now go before the next one. (7)
    fn let_readers_go_first(&mut self) -> Wake {
        debug_assert!(self.passes.is_empty(), "they hold back writers");
        self.passes = mem::take(&mut self.readers);
        READERS_AND_WRITERS
    }

    fn is_free(&self) -> bool {
        self.sole.is_none() && self.reads.is_empty()
    }

    fn is_held_by_other_than(&self, family: LockFamily) -> bool {
        match &self.sole {
            Some(sole) => sole.family != family,
            None => !self.reads.is_empty() && family != LockFamily::ReadWrite,
        }
    }

    /// Until when, at the longest, something stands in the way of `hold`; `None` if nothing does.
    fn obstacle(&self, hold: &Hold) -> Option<Instant> {
        if self.holds(hold) {
            return None; // (4)
        }
        let sole = self.sole.as_ref().map(|sole| sole.until);
        match hold.mode {
            LockMode::Reentrant => sole,
            LockMode::Fair => sole.or_else(|| {
                let (first, until) = self.queue.first()?;
                (first != hold.id).then_some(until)
            }),
            LockMode::Read => match &self.sole {
                Some(writer) if writer.id == hold.id => None, // (1)
                Some(writer) => Some(writer.until),
                None if self.passes.until(hold.id).is_some() => None,
                None => self.writers.longest(),
            },
            LockMode::Write => sole.max(self.reads.longest()).or(self.passes.longest()),
        }
    }

    fn grant(&mut self, hold: &Hold, until: Instant) {
        self.stop_waiting(hold);
        self.live(hold, until);
    }

    /// Lets the hold live until then. A writer lives at least as long as its own read. (2)
    fn live(&mut self, hold: &Hold, until: Instant) {
        let (id, family) = (hold.id, hold.mode.family());
        if hold.mode == LockMode::Read {
            self.reads.put(id, until);
            if let Some(writer) = &mut self.sole {
                writer.until = writer.until.max(until);
            }
            return;
        }
        let until = self.reads.until(id).map_or(until, |read| read.max(until));
        self.sole = Some(Sole { family, id, until });
    }

    /// Takes a place among those who wait, or keeps it alive. (6, 7)
    fn wait(&mut self, hold: &Hold, until: Instant) {
        match hold.mode {
            LockMode::Reentrant => {}
            LockMode::Fair => self.queue.put(hold.id, until),
            LockMode::Read => self.readers.put(hold.id, until),
            LockMode::Write => self.writers.put(hold.id, until),
        }
    }

    /// Gives up the place among those who wait, and says who was held back by nothing else. (8)
    fn stop_waiting(&mut self, hold: &Hold) -> Wake {
        match hold.mode {
            LockMode::Reentrant => NOBODY,
            LockMode::Fair => {
                self.queue.remove(hold.id);
                match self.is_free() {
                    true => self.tell_next(),
                    false => NOBODY,
                }
            }
            LockMode::Read => {
                self.readers.remove(hold.id);
                if self.passes.remove(hold.id) && self.passes.is_empty() && self.is_free() {
                    return READERS_AND_WRITERS;
                }
                NOBODY
            }
            LockMode::Write => {
                let writing = |sole: &Sole| sole.family == LockFamily::ReadWrite;
                let was_last = self.writers.remove(hold.id) && self.writers.is_empty();
                match was_last && !self.sole.as_ref().is_some_and(writing) {
                    true => READERS_AND_WRITERS,
                    false => NOBODY,
                }
            }
        }
    }

    /// Where the next in the fair queue listens.
    fn next(&self) -> Option<Channel> {
        self.queue.first().map(|(id, _)| Channel::Fair(id))
    }

    /// Who is to be woken when fairness grants the next: the first in the queue; if it is empty, an attempt that waits without a
    /// place in it. (8)
    fn tell_next(&self) -> Wake {
        [Some(self.next().unwrap_or(Channel::Exclusive)), None]
    }
}

impl Sole {
    fn is(&self, hold: &Hold) -> bool {
        self.id == hold.id && self.family == hold.mode.family()
    }
}

/// `duration` from `now`, or the far future if there is no such instant.
pub(super) fn after(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}
