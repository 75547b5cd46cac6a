//! What the task of a contended key does, and those who wait without an answer of the store.

use tokio::time::Instant;

use super::{Asks, Key, KeyAt};
use crate::error::LockError;
use crate::limits::LAST_MOMENT;
use crate::lock::LockMode;
use crate::table::Out;
use crate::table::line::{CLAIM, Next, Side, Task, Waiter};

impl KeyAt<'_> {
    /// The request `number`, which has asked or waits, is over.
    pub(crate) fn left(&mut self, side: Side, number: u64) {
        let asked = self.key.no_more_asking(number);
        if self.key.lines.is_some() {
            let line = self.key.line_mut(side);
            let waited = line.remove(number).is_some();
            line.settle(&mut self.out);
            match asked || waited {
                true => self.wake(),
                // It had its grant, which is no news for others. In a fair queue its task ends.
                false => line.wake_one(side, number, &mut self.out),
            }
        }
    }

    /// A request that waits has the answer `error`. Those that wait for it go on.
    pub(crate) fn failed(&mut self, side: Side, ticket: u64, error: LockError) {
        if let Some(waiter) = self.key.line_mut(side).remove(ticket) {
            self.out.tell(waiter.slot, ticket, Err(error));
            self.wake();
        }
    }

    /// The task of a contended key was refused.
    pub(crate) fn line_refused(&mut self, task: &Task, until: Option<Instant>) {
        let line = self.key.line_mut(task.side);
        if !line.is_task(task) {
            return;
        }
        if until.is_some() {
            line.news(self.now, until);
        }
        if task.side == Side::Fair && line.placed(task.ticket) {
            line.wake_next(&mut self.out);
        }
    }

    /// The task of a contended key ends early: those who wait have the answer `error`.
    pub(crate) fn abandoned(&mut self, task: &Task, error: &LockError) {
        let line = self.key.line_mut(task.side);
        if line.is_task(task) {
            line.end_task(task);
            match task.only() {
                Some(ticket) => tell_all(line.remove(ticket), error, &mut self.out),
                None => tell_all(line.take_all(), error, &mut self.out),
            }
            self.wake();
        }
    }

    /// Whether a subscription serves the waiters: the process hears the messages of its own releases.
    pub(crate) fn listens(&mut self, task: &Task, listens: bool) {
        let line = self.key.line_mut(task.side);
        if line.is_task(task) {
            line.listens = listens;
        }
    }

    /// What a task of a contended key does next. One that another has replaced ends.
    pub(crate) fn next(&mut self, task: &Task) -> Next {
        let now = self.now;
        let (side, only) = (task.side, task.only());
        if self.key.lines.is_none() || !self.key.line_mut(side).is_task(task) {
            return Next::Done;
        }
        let line = self.key.line_mut(side);
        let untaken = line.revoke(now, &mut self.out);
        line.asks_for(task.ticket, false);
        let is_over = match only {
            Some(ticket) => !line.has(ticket),
            None => line.is_empty(),
        };
        if is_over {
            return match untaken {
                Some(until) => {
                    line.asks = None;
                    Next::Idle { until }
                }
                None => {
                    line.end_task(task);
                    Next::Done
                }
            };
        }
        let wait = |until: Instant, holds| Next::Wait {
            until: untaken.map_or(until, |untaken| untaken.min(until)),
            holds,
        };
        let line = self.key.line(side).expect("it is there");
        let is_next = |waiter: &&Waiter| {
            only.is_none_or(|ticket| ticket == waiter.ticket)
                && self.key.is_first_of_owner(waiter, now)
        };
        let first = line.iter().find(is_next);
        let Some(first) = first else {
            return wait(now + CLAIM, None);
        };
        if side == Side::Exclusive
            && !first.terms.mode.is_permit()
            && let Some(own) = self.key.own_hold(first.terms.mode)
        {
            // Not longer: the hold may pass to a request that does not take it.
            return wait(now + CLAIM, Some(own.held.clone()));
        }
        let (until, after) = match first.terms.mode {
            // Its place in the store is behind those of earlier requests.
            LockMode::Fair if first.placed => (None, None),
            LockMode::Fair => {
                let earlier = line.iter().take_while(|other| other.ticket < first.ticket);
                let earlier = earlier.filter(|waiter| !waiter.placed);
                let earlier = earlier.map(|waiter| waiter.since + LAST_MOMENT);
                let asking = self.key.until(side, |asks| asks == Asks::ForHold);
                (earlier.chain(asking).max(), None)
            }
            // So many ask for themselves.
            LockMode::Permit(limit) if self.key.asking(side, now) < limit.get() as usize => {
                (None, None)
            }
            LockMode::Permit(_) => {
                let asking = self.key.until(side, |asks| asks == Asks::ForHold);
                (asking.min(), None)
            }
            _ => {
                let under_way = self.key.until(side, |asks| asks != Asks::Yields);
                let yields = self.key.until(side, |asks| asks == Asks::Yields);
                (under_way.max(), yields.max())
            }
        };
        match until.filter(|until| *until > now) {
            Some(until) => wait(until, None),
            None => {
                let (ticket, terms) = (first.ticket, first.terms.clone());
                let line = self.key.line_mut(side);
                line.asks.get_or_insert(u64::MAX);
                line.asks_for(ticket, true);
                let behind = line.len() - 1;
                Next::Ask {
                    ticket,
                    terms,
                    after,
                    behind,
                }
            }
        }
    }
}

impl Key {
    /// The client is shut down: no request waits any more.
    pub(in crate::table) fn closed(&mut self) -> Out {
        let mut out = Out::default();
        for line in self.lines.iter_mut().flat_map(|lines| lines.iter_mut()) {
            tell_all(line.take_all(), &LockError::Shutdown, &mut out);
            line.wake(&mut out);
        }
        out
    }
}

/// The same error is the answer to all of them.
fn tell_all(waiters: impl IntoIterator<Item = Waiter>, error: &LockError, out: &mut Out) {
    for waiter in waiters {
        out.tell(waiter.slot, waiter.ticket, Err(error.clone()));
    }
}
