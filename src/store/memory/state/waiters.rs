//! The places of those that wait for a key, and whom a change wakes.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::{OutsideTurn, Sole, State};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::limits::after;
use crate::lock::{Hold, LockFamily, LockMode};
use crate::store::memory::channel::{Channel, Wake};

/// How long waiters outside the line have to take the lock after a release that woke them.
const OUTSIDE_TURN: Duration = Duration::from_millis(5);

/// For how long it is known that a hold was granted in front of the line: longer than nearly any hold lasts, however often it is
/// renewed.
const IN_FRONT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const NONE_WOKEN: Wake = [None; 4];

impl State {
    /// A writer has ended: the readers that wait now go before the next one. (7)
    pub(super) fn let_readers_go_first(&mut self) -> Wake {
        debug_assert!(self.passes.is_empty(), "they hold back writers");
        self.passes = mem::take(&mut self.readers);
        let [others, next, first, _] = self.wake(Channel::ReadWrite);
        let readers = (!self.passes.is_empty()).then_some(Channel::Readers);
        [others, next, first, readers]
    }

    /// Takes a place among the waiters, or keeps it alive. (6, 7, 10)
    pub(super) fn wait(&mut self, hold: &Hold, in_line: bool, until: Instant) {
        match hold.mode {
            LockMode::Fair => self.queue.put(hold.id, until),
            LockMode::Read => self.readers.put(hold.id, until),
            LockMode::Reentrant | LockMode::Write | LockMode::Permit(_) if in_line => {
                self.waiting.put(hold.id, until);
                self.line.put(hold.id, until);
            }
            LockMode::Reentrant | LockMode::Permit(_) => {}
            LockMode::Write => self.waiting.put(hold.id, until),
        }
    }

    /// Gives up the place among the waiters, and returns the channels of those that only this attempt blocked. (8)
    pub(super) fn stop_waiting(&mut self, hold: &Hold) -> Wake {
        match hold.mode {
            LockMode::Reentrant | LockMode::Permit(_) => self.leave_line(hold),
            LockMode::Fair => {
                self.queue.remove(hold.id);
                match self.is_free() {
                    true => self.tell_next(),
                    false => NONE_WOKEN,
                }
            }
            LockMode::Read => {
                self.readers.remove(hold.id);
                if self.passes.remove(hold.id) && self.passes.is_empty() && self.is_free() {
                    return self.wake(Channel::ReadWrite);
                }
                NONE_WOKEN
            }
            LockMode::Write => {
                let writing = |sole: &Sole| sole.family == LockFamily::ReadWrite;
                let [_, _, next, _] = self.leave_line(hold);
                let was_last = self.waiting.remove(hold.id) && self.waiting.is_empty();
                let held_back = was_last && !self.sole.as_ref().is_some_and(writing);
                let readers = held_back && !self.readers.is_empty();
                [
                    held_back.then_some(Channel::ReadWrite),
                    None,
                    next,
                    readers.then_some(Channel::Readers),
                ]
            }
        }
    }

    /// A permit was granted: if another is free, the next in line is woken. (10)
    pub(in super::super) fn next_permit(&self) -> Wake {
        #[cfg(test)]
        if exploration::has(Mutant::NextPermitForgotten) {
            return NONE_WOKEN;
        }
        let free = (self.permits.free() > 0).then(|| self.first_in_line());
        [None, None, free.flatten(), None]
    }

    /// A release has woken waiters outside the line: one of them has time to take the lock before the line, or the line has
    /// that time if one of them has just released it. (10)
    pub(in super::super) fn give_outside_turn(&mut self, woken: usize, now: Instant) {
        let turn = match self.outside {
            Some((OutsideTurn::Had, _)) => OutsideTurn::Over,
            _ if woken > 0 => OutsideTurn::Now,
            _ => return,
        };
        // In an exploration time does not pass, and their turn would never end.
        #[cfg(test)]
        if exploration::is_on() {
            return;
        }
        self.outside = Some((turn, after(now, OUTSIDE_TURN)));
    }

    /// An attempt without a place in line is granted a hold, first until `until`. (10)
    pub(super) fn take_outside_turn(&mut self, mode: LockMode, until: Instant, now: Instant) {
        if mode.has_line() && self.line.first().is_some() {
            let until = until.max(after(now, IN_FRONT));
            self.outside = Some((OutsideTurn::Had, until));
        }
    }

    /// Until when it is this turn.
    pub(super) fn outside_turn(&self, which: OutsideTurn) -> Option<Instant> {
        let (turn, until) = self.outside?;
        (turn == which).then_some(until)
    }

    /// Whether it is first in line.
    pub(super) fn is_first(&self, hold: &Hold) -> bool {
        self.line.first().is_none_or(|(first, _)| first == hold.id)
    }

    /// Gives up the place in line. The new first one is woken, because it may have to listen on another channel. (10)
    fn leave_line(&mut self, hold: &Hold) -> Wake {
        let was_first = self.line.first().is_some_and(|(first, _)| first == hold.id);
        self.line.remove(hold.id);
        if hold.mode != LockMode::Write {
            self.waiting.remove(hold.id);
        }
        #[cfg(test)]
        if exploration::has(Mutant::LosesTheTurn) {
            return NONE_WOKEN;
        }
        [None, None, self.first_in_line().filter(|_| was_first), None]
    }

    /// The channel of the first in line.
    pub(super) fn first_in_line(&self) -> Option<Channel> {
        #[cfg(test)]
        if exploration::has(Mutant::WakesNone) {
            return None;
        }
        let (first, _) = self.line.first()?;
        Some(Channel::Turn(first.client()))
    }

    /// Wakes waiters without a place in line, and the first in line.
    pub(super) fn wake(&self, without_place: Channel) -> Wake {
        [Some(without_place), None, self.first_in_line(), None]
    }

    /// Wakes all that an exclusive hold has kept waiting: the line, the fair queue, and attempts without a place in either.
    pub(super) fn wake_exclusive(&self) -> Wake {
        let [others, _, first, _] = self.wake(Channel::Exclusive);
        [others, self.next(), first, None]
    }

    /// The channel of the next in the fair queue.
    pub(super) fn next(&self) -> Option<Channel> {
        self.queue.first().map(|(id, _)| Channel::Fair(id))
    }

    /// The channels to wake when the fair queue has the turn: the first in the queue; if it is empty, attempts that wait without
    /// a place in it. (8)
    pub(super) fn tell_next(&self) -> Wake {
        match self.next() {
            Some(next) => [Some(next), None, None, None],
            None => self.wake(Channel::Exclusive),
        }
    }
}
