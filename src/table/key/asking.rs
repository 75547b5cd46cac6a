//! What the task of a contended key does, and those who wait without an answer of the store.

use tokio::time::Instant;

use super::Key;
use crate::error::LockError;
use crate::limits::LAST_MOMENT;
use crate::lock::LockMode;
use crate::table::Out;
use crate::table::line::{CLAIM, Next, Side, Task, Waiter};

impl Key {
    /// A request that waits is over.
    pub(in crate::table) fn left(&mut self, side: Side, ticket: u64) -> Out {
        let mut out = Out::default();
        if self.lines.is_some() {
            let line = self.line_mut(side);
            line.remove(ticket);
            line.settle(&mut out);
            self.wake(&mut out);
        }
        out
    }

    /// A request that waits gets an error.
    pub(in crate::table) fn failed(&mut self, side: Side, ticket: u64, error: LockError) -> Out {
        let mut out = Out::default();
        if let Some(waiter) = self.line_mut(side).remove(ticket) {
            out.tell(waiter.slot, ticket, Err(error));
        }
        out
    }

    /// The store has refused a task.
    pub(in crate::table) fn line_refused(
        &mut self,
        task: &Task,
        until: Option<Instant>,
        now: Instant,
    ) -> Out {
        let mut out = Out::default();
        if let Some(until) = until {
            self.news(task.side, now, Some(until));
        }
        if task.side == Side::Fair {
            let line = self.line_mut(task.side);
            line.placed(task.ticket);
            line.wake(&mut out);
        }
        out
    }

    /// A task ends early.
    pub(in crate::table) fn abandoned(&mut self, task: &Task, error: &LockError) -> Out {
        let mut out = Out::default();
        let line = self.line_mut(task.side);
        if line.is_task(task) {
            line.end_task(task);
            match task.only() {
                Some(ticket) => tell_all(line.remove(ticket), error, &mut out),
                None => tell_all(line.take_all(), error, &mut out),
            }
        }
        out
    }

    /// The client is shut down: no request waits any more.
    pub(in crate::table) fn closed(&mut self) -> Out {
        let mut out = Out::default();
        for line in self.lines.iter_mut().flat_map(|lines| lines.iter_mut()) {
            line.wake(&mut out);
            tell_all(line.take_all(), &LockError::Shutdown, &mut out);
        }
        out
    }

    /// What a task does next. `has_place`: it has something in the store. One that another has replaced ends, and so does one too
    /// many.
    pub(in crate::table) fn next(
        &mut self,
        task: &Task,
        has_place: bool,
        now: Instant,
    ) -> (Next, Out) {
        let mut out = Out::default();
        let (side, only) = (task.side, task.only());
        if self.lines.is_none() || !self.line_mut(side).is_task(task) {
            return (Next::Done, out);
        }
        let line = self.line_mut(side);
        let untaken = line.revoke(now, &mut out);
        let waits = line.iter().any(|waiter| waiter.ticket == task.ticket);
        let is_over = match only {
            Some(_) => !waits,
            None => line.is_empty(),
        };
        let is_extra = only.is_none() && line.tasks() > line.len().max(1) && !(waits && has_place);
        if is_over || is_extra {
            return match untaken.filter(|_| !is_extra) {
                Some(until) => (Next::Idle { until }, out),
                None => {
                    line.end_task(task);
                    (Next::Done, out)
                }
            };
        }
        let wait = |until: Instant, holds| Next::Wait {
            until: untaken.map_or(until, |untaken| untaken.min(until)),
            holds,
        };
        let line = self.line(side).expect("it is there");
        let is_next = |waiter: &&Waiter| {
            only.is_none_or(|ticket| ticket == waiter.ticket) && self.is_first_of_owner(waiter)
        };
        let first = line.iter().find(is_next);
        let Some(first) = first else {
            return (wait(now + CLAIM, None), out);
        };
        if side == Side::Exclusive
            && !first.terms.mode.is_permit()
            && let Some(own) = self.own_hold(first.terms.mode)
        {
            // Not longer: the hold may pass to a request that does not take it.
            return (wait(now + CLAIM, Some(own.held.clone())), out);
        }
        let busy = self.busy.iter().filter(|busy| busy.side == side);
        let (yields, under_way): (Vec<_>, Vec<_>) = busy.partition(|busy| busy.yields.is_some());
        let asking = under_way.iter().filter(|busy| !busy.releases);
        let (until, after) = match first.terms.mode {
            // Its place in the store is behind those of earlier requests.
            LockMode::Fair if first.placed => (None, None),
            LockMode::Fair => {
                let earlier = line
                    .iter()
                    .filter(|waiter| waiter.ticket < first.ticket && !waiter.placed);
                let earlier = earlier.map(|waiter| waiter.since + LAST_MOMENT);
                (earlier.chain(asking.map(|busy| busy.over())).max(), None)
            }
            // So many ask for themselves.
            LockMode::Permit(limit) if asking.clone().count() < limit.get() as usize => {
                (None, None)
            }
            LockMode::Permit(_) => (asking.map(|busy| busy.over()).min(), None),
            _ => (
                under_way.iter().map(|busy| busy.over()).max(),
                yields.iter().filter_map(|busy| busy.yields).max(),
            ),
        };
        match until.filter(|until| *until > now) {
            Some(until) => (wait(until, None), out),
            None => {
                let (ticket, terms) = (first.ticket, first.terms.clone());
                let line = self.line_mut(side);
                line.asks = true;
                let behind = if line.tasks() == 1 { line.len() - 1 } else { 0 };
                let ask = Next::Ask {
                    ticket,
                    terms,
                    after,
                    behind,
                };
                (ask, out)
            }
        }
    }

    pub(in crate::table) fn listens(&mut self, side: Side, listens: bool) {
        self.line_mut(side).listens = listens;
    }
}

/// The same error is the answer to all of them.
fn tell_all(waiters: impl IntoIterator<Item = Waiter>, error: &LockError, out: &mut Out) {
    for waiter in waiters {
        out.tell(waiter.slot, waiter.ticket, Err(error.clone()));
    }
}
