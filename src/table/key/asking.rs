//! What the task of a contended key does, and those who wait without an answer of the store.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Key;
use crate::error::LockError;
use crate::limits::{ANSWER_TIME, LAST_MOMENT, POLL};
use crate::table::line::{Next, Side, Waiter};
use crate::table::{Out, Told};

impl Key {
    /// A request that waits is over.
    pub(in crate::table) fn left(&mut self, side: Side, ticket: u64) -> Out {
        let mut out = Out::default();
        if self.lines.is_some() {
            let waiter = self.line_mut(side).remove(ticket);
            out.wake.extend(waiter.and_then(|waiter| waiter.task));
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

    /// A task ends early.
    pub(in crate::table) fn abandoned(
        &mut self,
        side: Side,
        fair: Option<u64>,
        work: &Arc<Notify>,
        error: &LockError,
    ) -> Out {
        let mut out = Out::default();
        let line = self.line_mut(side);
        match fair {
            Some(ticket) => {
                let waiter = line.remove(ticket);
                out.tell.extend(waiter.map(|waiter| told(waiter, error)));
            }
            None if line.is_task(work) => {
                line.end_task();
                out.tell
                    .extend(line.take_all().map(|waiter| told(waiter, error)));
            }
            None => {}
        }
        out
    }

    /// The client is shut down: no request waits any more.
    pub(in crate::table) fn closed(&mut self) -> Out {
        let mut out = Out::default();
        for line in self.lines.iter_mut().flat_map(|lines| lines.iter_mut()) {
            line.wake(&mut out);
            let waiters = line.take_all();
            out.tell
                .extend(waiters.map(|waiter| told(waiter, &LockError::Shutdown)));
        }
        out
    }

    /// What a task does next. One that another has replaced ends.
    pub(in crate::table) fn next(
        &mut self,
        side: Side,
        fair: Option<u64>,
        work: &Arc<Notify>,
        now: Instant,
    ) -> (Next, Out) {
        let mut out = Out::default();
        if self.lines.is_none() {
            return (Next::Done, out);
        }
        let line = self.line_mut(side);
        if fair.is_none() && !line.is_task(work) {
            return (Next::Done, out);
        }
        let untaken = line.revoke(now, &mut out);
        let is_over = match fair {
            Some(ticket) => !line.iter().any(|waiter| waiter.ticket == ticket),
            None => line.is_empty(),
        };
        if is_over {
            return match untaken {
                Some(until) => (Next::Wait { until, holds: None }, out),
                None => {
                    if fair.is_none() {
                        line.end_task();
                    }
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
            fair.is_none_or(|ticket| ticket == waiter.ticket) && self.is_first_of_owner(waiter)
        };
        let first = line.iter().find(is_next);
        let Some(first) = first else {
            return (wait(now + POLL, None), out);
        };
        if side == Side::Exclusive
            && !first.terms.mode.is_permit()
            && let Some(own) = self.own_hold(first.terms.mode)
        {
            return (wait(now + POLL, Some(own.held.clone())), out);
        }
        let mut until = None;
        if side != Side::Fair && !first.terms.mode.is_permit() {
            let busy = self.busy.iter().filter(|busy| busy.side == side);
            let over = busy.map(|busy| match busy.releases {
                true => busy.since + ANSWER_TIME,
                false => busy.since + LAST_MOMENT,
            });
            until = over.max();
        }
        match until.filter(|until| *until > now) {
            Some(until) => (wait(until, None), out),
            None => {
                let (ticket, terms) = (first.ticket, first.terms.clone());
                self.line_mut(side).asks = true;
                (Next::Ask { ticket, terms }, out)
            }
        }
    }

    pub(in crate::table) fn listens(&mut self, side: Side, listens: bool) {
        self.line_mut(side).listens = listens;
    }
}

fn told(waiter: Waiter, error: &LockError) -> Told {
    Told {
        slot: waiter.slot,
        ticket: waiter.ticket,
        answer: Err(error.clone()),
    }
}
