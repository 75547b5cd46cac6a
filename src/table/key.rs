//! The state machine of one key.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::line::{CLAIM, Line, Side, Task, Waiter};
use super::shared::Shared;
use super::wheel::Wheel;
use super::{HandoverLimits, NewShare, Out};
use crate::hold::Held;
use crate::limits::{ANSWER_TIME, LAST_MOMENT, POLL};
use crate::lock::{LockMode, Owner};

mod asking;
mod ending;
mod entering;
mod granting;

/// How many read holds of one key a process has in the store. Further readers join the youngest of them.
const MAX_READ_HOLDS: usize = 64;

/// The holds and the requests of one key in this process.
///
/// The mutex of its shard protects it. A request is in one place: it shares a hold, it asks the store, or it waits in the line of
/// its side. An owner has one request at a time that asks, or for which a task asks; its others wait behind it.
#[derive(Default)]
pub(crate) struct Key {
    holds: SmallVec<[Shared; 1]>,
    /// The requests that ask the store, and the releases that it has not answered.
    busy: SmallVec<[Busy; 1]>,
    /// Boxed: most keys have no line.
    lines: Option<Box<[Line; 3]>>,
}

/// A key at an instant: what happens to it is one of the methods, and `out` has the effects.
pub(crate) struct KeyAt<'a> {
    pub(super) key: &'a mut Key,
    pub(super) wheel: &'a mut Wheel,
    pub(super) now: Instant,
    pub(super) limits: HandoverLimits,
    /// Whether a release is an event of its own: a store answers it later, and a request that asks before is refused.
    pub(super) releases_later: bool,
    /// The client was shut down.
    pub(super) closed: bool,
    /// The key is new, and there is no room for it.
    pub(super) is_one_too_many: bool,
    pub(super) out: Out,
}

/// Something under way in the store.
#[derive(Debug)]
struct Busy {
    /// That of the request, or of the released hold.
    number: u64,
    side: Side,
    owner: Option<Owner>,
    since: Instant,
    releases: bool,
    /// It is answered, and has woken others, which ask first until then.
    yields: Option<Instant>,
}

impl Busy {
    /// How long others wait for it at most.
    fn over(&self) -> Instant {
        match self.releases {
            true => self.since + ANSWER_TIME,
            false => self.since + LAST_MOMENT,
        }
    }
}

/// The place of a request.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It shares a hold.
    Share(NewShare),
    /// It asks the store.
    Ask,
    /// It waits. If no task asks for its side yet, this task must be started.
    Wait { start: Option<Task> },
}

impl Key {
    pub(super) fn is_idle(&self) -> bool {
        let lines = self.lines.as_deref();
        self.holds.is_empty()
            && self.busy.is_empty()
            && lines.is_none_or(|lines| lines.iter().all(Line::is_idle))
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Shared> {
        self.holds.iter()
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.lines
            .iter()
            .flat_map(|lines| &**lines)
            .flat_map(Line::iter)
    }

    /// Every request that waits, and whether the store has been asked in its place.
    pub(super) fn waiters_with_places(&self) -> impl Iterator<Item = (&Waiter, bool)> {
        let lines = self
            .lines
            .iter()
            .flat_map(|lines| lines.iter().zip(Side::ALL));
        lines.flat_map(|(line, side)| {
            let first = |index| line.was_refused && index == 0;
            let waiters = line.iter().enumerate();
            waiters.map(move |(index, waiter)| (waiter, side == Side::Fair || first(index)))
        })
    }

    /// How many requests wait on a side, behind the one for which the store is asked. In a fair queue each asks.
    pub(crate) fn waiting(&self, side: Side) -> usize {
        let line = self.line(side);
        let len = line.map_or(0, Line::len);
        match side {
            Side::Fair => {
                let busy = self.busy.iter();
                len + busy
                    .filter(|busy| busy.side == side && !busy.releases)
                    .count()
            }
            _ => {
                let asking = line.filter(|line| line.asks).map_or(0, Line::tasks);
                len.saturating_sub(asking)
            }
        }
    }

    /// The hold of this process for which its requests in an exclusive mode wait. One of another family is a conflict, of which the
    /// store tells.
    fn own_hold(&self, mode: LockMode) -> Option<&Shared> {
        let mut holds = self.holds.iter();
        holds.find(|shared| {
            let other = shared.held.hold.mode;
            !shared.is_lost() && other.is_exclusive() && other.family() == mode.family()
        })
    }

    /// Whether requests of this process ask or wait on a side.
    fn wants(&self, side: Side) -> bool {
        let asks = self
            .busy
            .iter()
            .any(|busy| busy.side == side && !busy.releases);
        asks || self.line(side).is_some_and(|line| !line.is_empty())
    }

    pub(super) fn no_more_asking(&mut self, number: u64) {
        self.busy
            .retain(|busy| busy.number != number || busy.releases);
    }

    /// Whether no other request of its owner asks, or has waited longer.
    fn is_first_of_owner(&self, waiter: &Waiter) -> bool {
        let Some(owner) = &waiter.terms.owner else {
            return true;
        };
        let asks = self
            .busy
            .iter()
            .any(|busy| !busy.releases && busy.owner.as_ref() == Some(owner));
        let waits_longer = |other: &Waiter| {
            other.ticket < waiter.ticket && other.terms.owner.as_ref() == Some(owner)
        };
        !asks && !self.waiters().any(waits_longer)
    }

    /// The rest of the lease that requests of this mode wait for: that of this process's hold, otherwise that of the holder in the
    /// store's last answer. Of permits, only the store says when the next comes free.
    fn remaining(&self, mode: LockMode, now: Instant) -> Option<Duration> {
        let here = self
            .holds
            .iter()
            .filter(|shared| !mode.is_permit() && !shared.is_lost());
        let here = here.map(|shared| shared.held.deadline().saturating_duration_since(now));
        here.max().or_else(|| {
            let held_until = self.line(Side::of(mode))?.held_until();
            held_until?.checked_duration_since(now)
        })
    }

    /// Why a request gives up: when the holder's lease ends. The outer `None`: nothing is known of a holder since `since`.
    pub(crate) fn known(
        &self,
        mode: LockMode,
        since: Instant,
        now: Instant,
    ) -> Option<Option<Duration>> {
        match self.remaining(mode, now) {
            None => {
                let mut lines = self.lines.iter().flat_map(|lines| &**lines);
                lines.any(|line| line.has_news_since(since)).then_some(None)
            }
            remaining => Some(remaining),
        }
    }

    fn place_of(&self, held: &Arc<Held>) -> Option<usize> {
        self.holds
            .iter()
            .position(|shared| Arc::ptr_eq(&shared.held, held))
    }

    fn line(&self, side: Side) -> Option<&Line> {
        self.lines.as_deref().map(|lines| &lines[side as usize])
    }

    fn line_mut(&mut self, side: Side) -> &mut Line {
        &mut self.lines.get_or_insert_default()[side as usize]
    }
}

impl KeyAt<'_> {
    /// Wakes every task.
    fn wake(&mut self) {
        for line in self.key.lines.iter().flat_map(|lines| &**lines) {
            line.wake(&mut self.out);
        }
    }
}

const _: () = assert!(CLAIM.as_millis() < POLL.as_millis());
