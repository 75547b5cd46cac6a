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
use crate::limits::POLL;
use crate::lock::{LockMode, Owner};

mod asking;
mod ending;
mod entering;
mod granting;

/// How many read holds of one key a process has in the store. Further readers join the youngest of them.
pub(super) const MAX_READ_HOLDS: usize = 64;

/// The holds and the requests of one key in this process.
///
/// The mutex of its shard protects it. A request is in one place: it shares a hold, it asks the store, or it waits in the line of
/// its side. An owner has one request at a time that asks, or for which a task asks; its others wait behind it.
#[derive(Debug, Default)]
pub(crate) struct Key {
    /// The holds, the requests that ask, and the releases without an answer. Mostly one at a time, so that there is room for one.
    in_store: SmallVec<[InStore; 1]>,
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

/// What this process has in the store.
#[derive(Debug)]
enum InStore {
    Held(Shared),
    Busy(Busy),
}

/// A question under way in the store.
#[derive(Debug)]
struct Busy {
    /// That of the request, or of the released hold.
    number: u64,
    owner: Option<Owner>,
    side: Side,
    asks: Asks,
    /// How long others wait for it at most.
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    ForHold,
    ForRelease,
    /// The release is answered, and has woken others, which ask first.
    Yields,
}

/// The place of a request.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It shares a hold.
    Share(NewShare),
    /// It asks the store; for a permit perhaps beside others of its process, which has one place in the store: without that.
    Ask { is_beside: bool },
    /// It waits. If no task asks for its side yet, this task must be started.
    Wait { start: Option<Task> },
}

impl Key {
    pub(super) fn is_idle(&self) -> bool {
        let lines = self.lines.as_deref();
        self.in_store.is_empty() && lines.is_none_or(|lines| lines.iter().all(Line::is_idle))
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Shared> {
        self.in_store.iter().filter_map(|part| match part {
            InStore::Held(shared) => Some(shared),
            InStore::Busy(_) => None,
        })
    }

    fn holds_mut(&mut self) -> impl Iterator<Item = &mut Shared> {
        self.in_store.iter_mut().filter_map(|part| match part {
            InStore::Held(shared) => Some(shared),
            InStore::Busy(_) => None,
        })
    }

    /// The questions about one side that are under way.
    fn busy(&self, side: Side) -> impl Iterator<Item = &Busy> {
        self.all_busy().filter(move |busy| busy.side == side)
    }

    fn all_busy(&self) -> impl Iterator<Item = &Busy> {
        self.in_store.iter().filter_map(|part| match part {
            InStore::Busy(busy) => Some(busy),
            InStore::Held(_) => None,
        })
    }

    /// How many questions this request has under way.
    #[cfg(test)]
    pub(super) fn asks(&self, number: u64) -> usize {
        let asks = |busy: &&Busy| busy.number == number && busy.asks == Asks::ForHold;
        self.all_busy().filter(asks).count()
    }

    /// How many requests ask for a side. One without an answer for too long does not count: its caller may not poll it any more.
    fn asking(&self, side: Side, now: Instant) -> usize {
        let until = self.until(side, |asks| asks == Asks::ForHold);
        until.filter(|until| now < *until).count()
    }

    /// Until when others wait for such questions at most.
    fn until(&self, side: Side, are: impl Fn(Asks) -> bool) -> impl Iterator<Item = Instant> {
        let busy = self.busy(side).filter(move |busy| are(busy.asks));
        busy.map(|busy| busy.until)
    }

    /// The release of a hold that is under way.
    fn release_mut(&mut self, number: u64) -> Option<&mut Busy> {
        self.in_store.iter_mut().find_map(|part| match part {
            InStore::Busy(busy) if busy.number == number && busy.asks != Asks::ForHold => {
                Some(busy)
            }
            _ => None,
        })
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
            let first = |index| line.was_refused() && index == 0;
            let waiters = line.iter().enumerate();
            waiters.map(move |(index, waiter)| (waiter, side == Side::Fair || first(index)))
        })
    }

    /// How many requests wait on a side, behind the one for which the store is asked. In a fair queue each asks.
    pub(crate) fn waiting(&self, side: Side) -> usize {
        let line = self.line(side);
        let len = line.map_or(0, Line::len);
        match side {
            Side::Fair => len + self.until(side, |asks| asks == Asks::ForHold).count(),
            _ => {
                let asks = line.is_some_and(|line| line.asks.is_some());
                len.saturating_sub(usize::from(asks))
            }
        }
    }

    /// The hold of this process for which its requests in an exclusive mode wait. One of another family is a conflict, of which the
    /// store tells.
    fn own_hold(&self, mode: LockMode) -> Option<&Shared> {
        self.holds().find(|shared| {
            let other = shared.held.hold.mode;
            !shared.is_lost() && other.is_exclusive() && other.family() == mode.family()
        })
    }

    /// Whether requests of this process ask or wait on a side.
    fn wants(&self, side: Side, now: Instant) -> bool {
        self.asking(side, now) > 0 || self.line(side).is_some_and(|line| !line.is_empty())
    }

    /// Returns whether this request has asked.
    pub(super) fn no_more_asking(&mut self, number: u64) -> bool {
        self.answered(|busy| busy.number == number && busy.asks == Asks::ForHold)
    }

    /// A question is answered. Returns whether there was one.
    fn answered(&mut self, is_it: impl Fn(&Busy) -> bool) -> bool {
        let is_it = |part: &InStore| matches!(part, InStore::Busy(busy) if is_it(busy));
        let place = self.in_store.iter().position(is_it);
        place
            .map(|place| self.in_store.swap_remove(place))
            .is_some()
    }

    /// Whether no other request of its owner asks, or has waited longer.
    fn is_first_of_owner(&self, waiter: &Waiter, now: Instant) -> bool {
        let Some(owner) = &waiter.terms.owner else {
            return true;
        };
        let asks = self
            .all_busy()
            .any(|busy| busy.owner.as_ref() == Some(owner) && now < busy.until);
        // Lines are sorted by ticket.
        let mut lines = self.lines.iter().flat_map(|lines| &**lines);
        let waits_longer = |line: &Line| {
            let mut before = line.iter().take_while(|other| other.ticket < waiter.ticket);
            before.any(|other| other.terms.owner.as_ref() == Some(owner))
        };
        !asks && !lines.any(waits_longer)
    }

    /// The rest of the lease that requests of this mode wait for: that of this process's hold, otherwise that of the holder in the
    /// store's last answer. Of permits, only the store says when the next comes free.
    fn remaining(&self, mode: LockMode, now: Instant) -> Option<Duration> {
        let here = self
            .holds()
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

    /// Where a hold is among what this process has in the store.
    fn place_of(&self, held: &Arc<Held>) -> Option<usize> {
        let is_it = |part: &InStore| matches!(part, InStore::Held(shared) if Arc::ptr_eq(&shared.held, held));
        self.in_store.iter().position(is_it)
    }

    fn is_shared_by(&self, place: usize, owner: &Owner) -> bool {
        matches!(&self.in_store[place], InStore::Held(shared) if shared.is_shared_by(owner))
    }

    /// `None` if its last share has ended.
    fn hold_mut(&mut self, held: &Arc<Held>) -> Option<&mut Shared> {
        self.holds_mut()
            .find(|shared| Arc::ptr_eq(&shared.held, held))
    }

    /// The last share of a hold has ended.
    fn forget(&mut self, held: &Arc<Held>) {
        if let Some(place) = self.place_of(held) {
            self.in_store.swap_remove(place);
        }
    }

    pub(super) fn line(&self, side: Side) -> Option<&Line> {
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
