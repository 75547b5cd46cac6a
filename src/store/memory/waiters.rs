//! The places of those that wait for a key, and whom a change wakes.

use std::time::Duration;

use smallvec::smallvec;
use tokio::time::Instant;

use super::channel::{Channel, Wake};
use super::entries::Part;
use super::state::{OutsideTurn, State};
#[cfg(test)]
use crate::exploration;
use crate::limits::after;
use crate::lock::{Hold, HoldId, LockMode};

/// How long waiters outside the line have to take the lock after a release that woke them.
const OUTSIDE_TURN: Duration = Duration::from_millis(5);

/// For how long it is known that a hold was granted in front of the line: longer than nearly any hold lasts, however often it is
/// renewed.
const IN_FRONT: Duration = Duration::from_secs(24 * 60 * 60);

impl State {
    /// A writer has ended: the readers that wait now go before the next one. (7)
    pub(super) fn let_readers_go_first(&mut self) -> Wake {
        self.entries.turn(Part::Reader, Part::Pass);
        let mut wake = self.wake(Channel::ReadWrite);
        if self.entries.has(Part::Pass) {
            wake.push(Channel::Readers);
        }
        wake
    }

    /// Takes a place among the waiters, or keeps it alive. (6, 7, 10)
    pub(super) fn wait(&mut self, hold: &Hold, in_line: bool, until: Instant) {
        let place = match hold.mode {
            LockMode::Fair => Part::Queued,
            LockMode::Read => Part::Reader,
            _ if in_line => Part::InLine,
            LockMode::Write => Part::Writer,
            LockMode::Reentrant | LockMode::Permit(_) => return,
        };
        self.entries.put(place, hold.id, until);
    }

    /// Gives up the place among the waiters, and returns the channels of those that only this attempt blocked. (8)
    pub(super) fn stop_waiting(&mut self, hold: &Hold) -> Wake {
        match hold.mode {
            LockMode::Reentrant | LockMode::Permit(_) => {
                self.leave_line(hold.id).1.into_iter().collect()
            }
            LockMode::Fair => {
                self.entries.take(Part::Queued, hold.id);
                match self.is_free() {
                    true => self.tell_next(),
                    false => Wake::new(),
                }
            }
            LockMode::Read => {
                self.entries.take(Part::Reader, hold.id);
                let gone = self.entries.take(Part::Pass, hold.id);
                match gone && !self.entries.has(Part::Pass) && self.is_free() {
                    true => self.wake(Channel::ReadWrite),
                    false => Wake::new(),
                }
            }
            LockMode::Write => {
                let (stood, next) = self.leave_line(hold.id);
                let waited = stood | self.entries.take(Part::Writer, hold.id);
                let has = |part| self.entries.has(part);
                let blocks = [Part::InLine, Part::Writer, Part::Write].map(has);
                let held_back = waited && !blocks.contains(&true);
                let others = held_back.then_some(Channel::ReadWrite);
                let readers = (held_back && has(Part::Reader)).then_some(Channel::Readers);
                others.into_iter().chain(next).chain(readers).collect()
            }
        }
    }

    /// A hold with a line was released, which has woken waiters outside the line: one of them has time to take the lock before the
    /// line, or the line has that time if one of them has just released it. (10)
    pub(super) fn give_outside_turn(&mut self, woken: usize, now: Instant) {
        let turn = match self.outside {
            Some((OutsideTurn::Holding, _)) => OutsideTurn::Over,
            _ if woken > 0 => OutsideTurn::First,
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
        if mode.has_line() && self.entries.has(Part::InLine) {
            let until = until.max(after(now, IN_FRONT));
            self.outside = Some((OutsideTurn::Holding, until));
        }
    }

    /// The first in line finds that the lock is taken: the turn of those outside is over.
    pub(super) fn end_outside_turn(&mut self, asks: HoldId) {
        let first = self.entries.first(Part::InLine);
        if first.is_none_or(|first| first.id == asks) {
            let is_first = |turn: &mut (OutsideTurn, _)| turn.0 == OutsideTurn::First;
            self.outside.take_if(is_first);
        }
    }

    /// A permit was granted: if another is free, the next in line is woken. (10)
    pub(super) fn wake_for_next_permit(&self) -> Wake {
        match self.has_free_permit() {
            true => self.first_in_line().into_iter().collect(),
            false => Wake::new(),
        }
    }

    /// Gives up the place in line, and returns whether there was one. The new first one is woken, because it may have to listen on
    /// another channel. (10)
    fn leave_line(&mut self, id: HoldId) -> (bool, Option<Channel>) {
        let first = self.entries.first(Part::InLine);
        let was_first = first.is_some_and(|first| first.id == id);
        let stood = self.entries.take(Part::InLine, id);
        (stood, self.first_in_line().filter(|_| was_first))
    }

    /// The channel of the first in line.
    fn first_in_line(&self) -> Option<Channel> {
        let first = self.entries.first(Part::InLine)?;
        Some(Channel::Turn(first.id.client()))
    }

    /// Wakes waiters without a place in line, and the first in line.
    pub(super) fn wake(&self, without_place: Channel) -> Wake {
        let mut wake = smallvec![without_place];
        if let Some(first) = self.first_in_line() {
            wake.push(first);
        }
        wake
    }

    /// The channel of the next in the fair queue.
    pub(super) fn next_queued(&self) -> Option<Channel> {
        let next = self.entries.first(Part::Queued)?;
        Some(Channel::Fair(next.id))
    }

    /// The channels to wake when the fair queue has the turn: the first in the queue; if it is empty, attempts that wait without
    /// a place in it. (8)
    pub(super) fn tell_next(&self) -> Wake {
        match self.next_queued() {
            Some(next) => [next].into_iter().collect(),
            None => self.wake(Channel::Exclusive),
        }
    }
}
