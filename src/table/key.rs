//! The state machine of one key.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::line::{CLAIM, Line, Next, Side, Waiter};
use super::shared::Shared;
use super::wheel::Wheel;
use super::{At, Ended, Grant, Holder, Out, Slot, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::hold::Held;
use crate::limits::{ANSWER_TIME, LAST_MOMENT, POLL};
use crate::lock::{LockFamily, LockMode, Owner};
use crate::store::Released;

/// How many read holds of one key a process has in the store. Further readers join the youngest of them.
const MAX_READ_HOLDS: usize = 64;

/// How long this process lets others ask first, in a store without a line whose release woke some: as long as a message takes, and up
/// to so much more.
const YIELD: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(3));

/// The holds and the requests of one key in this process.
///
/// The mutex of its shard protects it. A request is in one place: it shares a hold, it asks the store, or it waits in the line of
/// its side. An owner has one request at a time that asks, or for which a task asks; its others wait behind it.
#[derive(Default)]
pub(super) struct Key {
    holds: SmallVec<[Shared; 1]>,
    /// The requests that ask the store, and the releases that it has not answered.
    busy: SmallVec<[Busy; 1]>,
    /// Boxed: most keys have no line.
    lines: Option<Box<[Line; 3]>>,
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
}

/// The place of a request.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It shares a hold.
    Share(Grant),
    /// It asks the store.
    Ask,
    /// It waits. If no task asks for its side yet, this task must be started.
    Wait { start: Option<Arc<Notify>> },
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
        self.lines.iter().flat_map(|lines| &**lines).flat_map(Line::iter)
    }

    /// Every request that waits, and whether the store has been asked in its place.
    pub(super) fn waiters_with_places(&self) -> impl Iterator<Item = (&Waiter, bool)> {
        let lines = self.lines.iter().flat_map(|lines| lines.iter().zip(Side::ALL));
        lines.flat_map(|(line, side)| {
            let first = |index| line.was_refused && index == 0;
            let waiters = line.iter().enumerate();
            waiters.map(move |(index, waiter)| (waiter, side == Side::Fair || first(index)))
        })
    }

    /// A request comes.
    pub(super) fn enter(
        &mut self,
        number: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
        wheel: &mut Wheel,
        at: At,
    ) -> Result<Entered, LockError> {
        if let Some(grant) = self.rejoin(terms, wheel, at.now)? {
            return Ok(Entered::Share(grant));
        }
        if let Some(grant) = self.share_read(terms, wheel, at) {
            return Ok(Entered::Share(grant));
        }
        if self.may_ask(terms) {
            self.busy.push(Busy {
                number,
                side: Side::of(terms.mode),
                owner: terms.owner.clone(),
                since: at.now,
                releases: false,
            });
            return Ok(Entered::Ask);
        }
        match terms.max_waiters {
            None => {
                let retry_after = self.remaining(terms.mode, at.now);
                return Err(LockError::Busy { retry_after });
            }
            Some(most) if self.others(terms) >= most => return Err(LockError::Overloaded),
            Some(_) => {}
        }
        self.wait(number, terms, slot, wheel, at)
    }

    /// How many requests wait before a new one: of its owner, if it waits for another of them. The one for which the store is asked
    /// does not count.
    fn others(&self, terms: &Terms) -> usize {
        let is_of_owner = |owner: &Option<Owner>| owner.is_some() && *owner == terms.owner;
        let waiting = self.waiters().filter(|waiter| is_of_owner(&waiter.terms.owner)).count();
        let asks = self.busy.iter().any(|busy| is_of_owner(&busy.owner));
        if asks || waiting > 0 {
            return waiting - usize::from(!asks);
        }
        self.waiting(Side::of(terms.mode))
    }

    /// How many requests wait on a side, behind the one for which the store is asked. In a fair queue each asks.
    pub(super) fn waiting(&self, side: Side) -> usize {
        let line = self.line(side);
        let len = line.map_or(0, Line::len);
        match side {
            Side::Fair => {
                let busy = self.busy.iter();
                len + busy.filter(|busy| busy.side == side && !busy.releases).count()
            }
            _ => len - usize::from(len > 0 && line.is_some_and(|line| line.asks)),
        }
    }

    /// Whether a new request asks the store itself.
    fn may_ask(&self, terms: &Terms) -> bool {
        let is_of_owner = |owner: &Option<Owner>| owner.is_some() && *owner == terms.owner;
        let mut others = self.busy.iter().map(|busy| &busy.owner);
        let waits_for_owner = others.any(is_of_owner)
            || self.waiters().any(|waiter| is_of_owner(&waiter.terms.owner));
        if waits_for_owner {
            return false;
        }
        let side = Side::of(terms.mode);
        let waits = terms.max_waiters.is_some();
        let line = self.line(side);
        let is_behind = line.is_some_and(|line| !line.is_empty());
        let asking = |releases: bool| {
            let busy = self.busy.iter();
            busy.filter(|busy| busy.side == side && (releases || !busy.releases)).count()
        };
        match terms.mode {
            LockMode::Permit(limit) => {
                let is_refused = line.is_some_and(|line| line.was_refused && !line.is_empty());
                let has_room = !is_behind && asking(false) < limit.get() as usize;
                #[cfg(test)]
                let is_refused = is_refused && !exploration::has(Mutant::HerdAsks);
                #[cfg(test)]
                let has_room = has_room || exploration::has(Mutant::HerdAsks);
                !is_refused && (!waits || has_room)
            }
            LockMode::Read => !is_behind && asking(waits) == 0,
            LockMode::Fair => !waits || !is_behind && asking(false) == 0 && self.holds.is_empty(),
            LockMode::Reentrant | LockMode::Write => {
                !is_behind && asking(waits) == 0 && self.own_hold(terms.mode).is_none()
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

    /// A request waits in the line of its side, unless it can share a hold of its owner.
    pub(super) fn wait(
        &mut self,
        ticket: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
        wheel: &mut Wheel,
        at: At,
    ) -> Result<Entered, LockError> {
        if let Some(grant) = self.rejoin(terms, wheel, at.now)? {
            return Ok(Entered::Share(grant));
        }
        let side = Side::of(terms.mode);
        let slot = slot.get_or_insert_with(Slot::new).clone();
        slot.add();
        let line = self.line_mut(side);
        let task = || Some(Arc::<Notify>::default());
        let (own, start) = match side {
            Side::Fair => {
                let own = task();
                (own.clone(), own)
            }
            _ if line.task.is_none() => {
                line.task = task();
                (None, line.task.clone())
            }
            _ => (None, None),
        };
        line.push(Waiter {
            ticket,
            terms: terms.clone(),
            since: at.now,
            slot,
            task: own,
        });
        Ok(Entered::Wait { start })
    }

    /// Joins a hold of the owner.
    ///
    /// If the owner has lost a hold, it gets that error first, in every mode, because its work continued without the lock. A read
    /// under the owner's write is one more share of the write.
    fn rejoin(
        &mut self,
        terms: &Terms,
        wheel: &mut Wheel,
        now: Instant,
    ) -> Result<Option<Grant>, LockError> {
        let Some(owner) = &terms.owner else {
            return Ok(None);
        };
        let mut found = None;
        for (index, shared) in self.holds.iter().enumerate() {
            if !shared.is_shared_by(owner) {
                continue;
            }
            if shared.is_lost() || shared.held.is_lost(now) {
                return Err(LockError::Lost);
            }
            let mode = shared.held.hold.mode;
            match (mode, terms.mode) {
                (LockMode::Read, LockMode::Write) => return Err(LockError::Upgrade),
                (LockMode::Write, LockMode::Read) => found = Some(index),
                _ if mode == terms.mode => found = Some(index),
                _ if mode.family() == LockFamily::Exclusive
                    && terms.mode.family() == LockFamily::Exclusive =>
                {
                    found = Some(index);
                }
                _ => {}
            }
        }
        let Some(shared) = found.map(|index| &mut self.holds[index]) else {
            return Ok(None);
        };
        if terms.needs_token() && shared.held.token().is_none() {
            return Err(LockError::invalid(
                "the owner holds this key without a fencing token: ask for one at the outermost acquisition",
            ));
        }
        Ok(Some(shared.join(terms, wheel, now)))
    }

    /// Joins the youngest read hold, if it is young enough or there are too many, unless a writer of this process waits.
    fn share_read(&mut self, terms: &Terms, wheel: &mut Wheel, at: At) -> Option<Grant> {
        if terms.mode != LockMode::Read || self.wants(Side::Exclusive) {
            return None;
        }
        let mut reads = 0;
        let mut youngest: Option<&mut Shared> = None;
        for shared in self.holds.iter_mut().filter(|shared| shared.is_open_read()) {
            reads += 1;
            let is_younger = youngest.as_ref().is_none_or(|other| other.granted < shared.granted);
            if is_younger && shared.suits(terms, at.now) {
                youngest = Some(shared);
            }
        }
        let youngest = youngest?;
        let is_young = at.now < youngest.granted + at.limits.share_window;
        (is_young || reads >= MAX_READ_HOLDS).then(|| youngest.join(terms, wheel, at.now))
    }

    /// Whether requests of this process ask or wait on a side.
    fn wants(&self, side: Side) -> bool {
        let asks = self.busy.iter().any(|busy| busy.side == side && !busy.releases);
        asks || self.line(side).is_some_and(|line| !line.is_empty())
    }

    pub(super) fn no_more_asking(&mut self, number: u64) {
        self.busy.retain(|busy| busy.number != number || busy.releases);
    }

    /// The request `number` asked in vain, and waits. `leaves`: it has something in the store, with which the task of its side goes
    /// on, unless that has asked, too.
    pub(super) fn refused(
        &mut self,
        number: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
        (until, leaves): (Option<Instant>, bool),
        wheel: &mut Wheel,
        at: At,
    ) -> Result<(Entered, Out), LockError> {
        let mut out = Out::default();
        let side = Side::of(terms.mode);
        self.no_more_asking(number);
        if let Some(until) = until {
            self.news(side, at.now, Some(until));
        }
        let mut entered = self.wait(number, terms, slot, wheel, at)?;
        if let Entered::Wait { start } = &mut entered
            && side != Side::Fair
        {
            let line = self.line_mut(side);
            if leaves && start.is_none() && !line.asks {
                *start = Some(Arc::default());
                out.wake.extend(mem::replace(&mut line.task, start.clone()));
            }
            line.asks |= leaves && start.is_some();
        }
        self.wake(&mut out);
        Ok((entered, out))
    }

    /// The store has granted a hold, to the request with these terms. Returns its share.
    pub(super) fn granted(
        &mut self,
        held: &Arc<Held>,
        to: Option<&Terms>,
        wheel: &mut Wheel,
        at: At,
    ) -> (Option<Grant>, Out) {
        let mut out = Out::default();
        let mut shared = Shared::new(held.clone(), at.now);
        let grant = to.map(|terms| shared.join(terms, wheel, at.now));
        self.admit(shared, wheel, at, &mut out);
        (grant, out)
    }

    /// The store has granted a hold for those who wait: the first whom it fits gets it. Returns whether there is one.
    pub(super) fn given(
        &mut self,
        held: &Arc<Held>,
        fair: Option<u64>,
        wheel: &mut Wheel,
        at: At,
    ) -> (bool, Out) {
        let mut out = Out::default();
        let side = Side::of(held.hold.mode);
        let mut shared = Shared::new(held.clone(), at.now);
        let first = self.line(side).and_then(|line| {
            let mut waiters = line.iter().enumerate();
            let fits = |waiter: &Waiter| {
                fair.is_none_or(|ticket| ticket == waiter.ticket)
                    && waiter.terms.mode == held.hold.mode
                    && shared.fits(&waiter.terms, at.now)
                    && self.is_first_of_owner(waiter)
            };
            #[cfg(test)]
            let fits = |waiter: &Waiter| fits(waiter) || exploration::has(Mutant::FitsAnybody);
            waiters.find(|(_, waiter)| fits(waiter)).map(|(index, _)| index)
        });
        let Some(first) = first else {
            return (false, out);
        };
        let line = self.line_mut(side);
        line.asks = false;
        let waiter = line.give(first, at.now);
        let grant = shared.join(&waiter.terms, wheel, at.now);
        out.tell(waiter.slot, waiter.ticket, Ok(grant));
        self.admit(shared, wheel, at, &mut out);
        (true, out)
    }

    /// A new hold is here: the keeper gets it, the readers that wait enter with it, and so do requests of its owners.
    fn admit(&mut self, mut shared: Shared, wheel: &mut Wheel, at: At, out: &mut Out) {
        let mode = shared.held.hold.mode;
        let side = Side::of(mode);
        wheel.place(&shared.held, shared.held.first_visit(at.now));
        let has_lines = self.lines.is_some();
        if has_lines {
            let line = self.line_mut(side);
            line.news(at.now, None);
            if mem::take(&mut line.yields) {
                shared.stay();
            }
            if mode == LockMode::Read {
                let mut index = 0;
                while index < line.len() {
                    if !shared.suits(&line.get(index).terms, at.now) {
                        index += 1;
                        continue;
                    }
                    let waiter = line.give(index, at.now);
                    let grant = shared.join(&waiter.terms, wheel, at.now);
                    out.tell(waiter.slot, waiter.ticket, Ok(grant));
                }
            }
        }
        self.holds.push(shared);
        if has_lines {
            self.join_owners(wheel, at, out);
            self.wake(out);
        }
    }

    /// Requests whose owners have got a hold join it, or learn why they cannot.
    fn join_owners(&mut self, wheel: &mut Wheel, at: At, out: &mut Out) {
        for side in Side::ALL {
            let mut index = 0;
            while let Some(waiter) = self.line(side).filter(|line| index < line.len()) {
                let (ticket, terms) = {
                    let waiter = waiter.get(index);
                    if waiter.terms.owner.is_none() {
                        index += 1;
                        continue;
                    }
                    (waiter.ticket, waiter.terms.clone())
                };
                #[cfg(test)]
                if exploration::has(Mutant::SiblingForgotten) {
                    index += 1;
                    continue;
                }
                match self.rejoin(&terms, wheel, at.now) {
                    Ok(None) => index += 1,
                    Ok(Some(grant)) => {
                        let waiter = self.line_mut(side).give(index, at.now);
                        out.wake.extend(waiter.task);
                        out.tell(waiter.slot, ticket, Ok(grant));
                    }
                    Err(error) => {
                        let waiter = self.line_mut(side).remove(ticket);
                        let waiter = waiter.expect("it was there");
                        out.wake.extend(waiter.task);
                        out.tell(waiter.slot, ticket, Err(error));
                    }
                }
            }
        }
    }

    /// Whether no other request of its owner asks, or has waited longer.
    fn is_first_of_owner(&self, waiter: &Waiter) -> bool {
        let Some(owner) = &waiter.terms.owner else {
            return true;
        };
        let asks = self.busy.iter().any(|busy| !busy.releases && busy.owner.as_ref() == Some(owner));
        let waits_longer = |other: &Waiter| {
            other.ticket < waiter.ticket && other.terms.owner.as_ref() == Some(owner)
        };
        !asks && !self.waiters().any(waits_longer)
    }

    /// A share ends.
    pub(super) fn ended(
        &mut self,
        held: &Arc<Held>,
        holder: &Holder,
        pass_on: bool,
        releases_later: bool,
        wheel: &mut Wheel,
        at: At,
    ) -> (Ended, Out) {
        let mut out = Out::default();
        let Some(place) = self.place_of(held) else {
            return (Ended::Release { awaited: false }, out);
        };
        if self.holds[place].leave(holder, wheel, at.now) {
            return (Ended::GoesOn, out);
        }
        if pass_on && self.pass(place, wheel, at, &mut out) {
            return (Ended::GoesOn, out);
        }
        self.holds.swap_remove(place);
        wheel.remove(held);
        let mode = held.hold.mode;
        if releases_later && mode.is_handed_over() {
            self.busy.push(Busy {
                number: held.hold.id.number(),
                side: Side::of(mode),
                owner: None,
                since: at.now,
                releases: true,
            });
        }
        if let Some(lines) = &mut self.lines {
            // This process held the lock until now: that is news for those who wait.
            let line = &mut lines[Side::of(mode) as usize];
            if !mode.is_permit() {
                line.news(at.now, None);
            }
        }
        let awaited = self.lines.is_some() || releases_later && mode.is_handed_over();
        (Ended::Release { awaited }, out)
    }

    /// Passes a hold without shares to the next request, if the limits allow it. After a writer, the waiting readers have the turn.
    fn pass(&mut self, place: usize, wheel: &mut Wheel, at: At, out: &mut Out) -> bool {
        let shared = &self.holds[place];
        let mode = shared.held.hold.mode;
        if !mode.is_handed_over() || shared.is_lost() || self.wants(Side::Read) {
            return false;
        }
        let next = self.line(Side::Exclusive).and_then(|line| {
            let mut waiters = line.iter().enumerate();
            waiters.find(|(_, waiter)| self.is_first_of_owner(waiter))
        });
        let Some((index, next)) = next else {
            return false;
        };
        if next.terms.mode != mode || !shared.may_pass_to(&next.terms, at.limits, at.now) {
            return false;
        }
        let waiter = self.line_mut(Side::Exclusive).give(index, at.now);
        let grant = self.holds[place].pass_to(&waiter.terms, wheel, at.now);
        out.tell(waiter.slot, waiter.ticket, Ok(grant));
        if waiter.terms.owner.is_some() {
            self.join_owners(wheel, at, out);
        }
        true
    }

    /// The store has answered a release. If it has woken clients that stand in no line, they get the next turn; in a store without a
    /// line, they ask first, and the release counts as under way until then.
    pub(super) fn released(&mut self, held: &Held, released: Released) -> Out {
        let mut out = Out::default();
        let number = held.hold.id.number();
        let side = Side::of(held.hold.mode);
        // In a store without a line, this process may be one of those that the release woke.
        let listens = self.line(side).is_some_and(|line| line.listens);
        if released.notified > usize::from(listens && !released.in_line) {
            if self.line(side).is_some_and(|line| !line.is_idle()) {
                self.line_mut(side).yields = true;
            }
            if !released.in_line {
                out.later = Some(YIELD.0 + YIELD.1.mul_f64(fastrand::f64()));
                return out;
            }
        }
        self.busy.retain(|busy| busy.number != number || !busy.releases);
        self.wake(&mut out);
        out
    }

    /// A hold stays in the store after its end.
    pub(super) fn stay(&mut self, held: &Arc<Held>) {
        if let Some(place) = self.place_of(held) {
            self.holds[place].stay();
        }
    }

    /// A hold is lost. `None`: it is not here.
    pub(super) fn lost(&mut self, held: &Arc<Held>, wheel: &mut Wheel) -> Option<Out> {
        let place = self.place_of(held)?;
        self.holds[place].lose();
        wheel.remove(held);
        Some(self.wake_all())
    }

    /// A request that waits is over.
    pub(super) fn left(&mut self, side: Side, ticket: u64) -> Out {
        let mut out = Out::default();
        if self.lines.is_some() {
            let waiter = self.line_mut(side).remove(ticket);
            out.wake.extend(waiter.and_then(|waiter| waiter.task));
            self.wake(&mut out);
        }
        out
    }

    /// A request that waits gets an error.
    pub(super) fn failed(&mut self, side: Side, ticket: u64, error: LockError) -> Out {
        let mut out = Out::default();
        if let Some(waiter) = self.line_mut(side).remove(ticket) {
            out.tell(waiter.slot, ticket, Err(error));
        }
        out
    }

    /// A task ends early.
    pub(super) fn abandoned(
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
                out.tell.extend(line.take_all().map(|waiter| told(waiter, error)));
            }
            None => {}
        }
        out
    }

    /// The client is shut down: no request waits any more.
    pub(super) fn closed(&mut self) -> Out {
        let mut out = Out::default();
        for line in self.lines.iter_mut().flat_map(|lines| lines.iter_mut()) {
            line.wake(&mut out);
            let waiters = line.take_all();
            out.tell.extend(waiters.map(|waiter| told(waiter, &LockError::Shutdown)));
        }
        out
    }

    /// What a task does next. One that another has replaced ends.
    pub(super) fn next(
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
        if side == Side::Exclusive && !first.terms.mode.is_permit() && let Some(own) = self.own_hold(first.terms.mode) {
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

    pub(super) fn listens(&mut self, side: Side, listens: bool) {
        self.line_mut(side).listens = listens;
    }

    pub(super) fn news(&mut self, side: Side, now: Instant, held_until: Option<Instant>) {
        self.line_mut(side).news(now, held_until);
    }

    /// The rest of the lease that requests of this mode wait for: that of this process's hold, otherwise that of the holder in the
    /// store's last answer. Of permits, only the store says when the next comes free.
    fn remaining(&self, mode: LockMode, now: Instant) -> Option<Duration> {
        let here = self.holds.iter().filter(|shared| !mode.is_permit() && !shared.is_lost());
        let here = here.map(|shared| shared.held.deadline().saturating_duration_since(now));
        here.max().or_else(|| {
            let held_until = self.line(Side::of(mode))?.held_until();
            held_until?.checked_duration_since(now)
        })
    }

    /// What is known of a holder since `since`.
    pub(super) fn known(&self, mode: LockMode, since: Instant, now: Instant) -> Option<Option<Duration>> {
        match self.remaining(mode, now) {
            None => {
                let mut lines = self.lines.iter().flat_map(|lines| &**lines);
                lines.any(|line| line.has_news_since(since)).then_some(None)
            }
            remaining => Some(remaining),
        }
    }

    /// Wakes every task.
    pub(super) fn wake_all(&self) -> Out {
        let mut out = Out::default();
        self.wake(&mut out);
        out
    }

    fn wake(&self, out: &mut Out) {
        for line in self.lines.iter().flat_map(|lines| &**lines) {
            line.wake(out);
        }
    }

    fn place_of(&self, held: &Arc<Held>) -> Option<usize> {
        self.holds.iter().position(|shared| Arc::ptr_eq(&shared.held, held))
    }

    fn line(&self, side: Side) -> Option<&Line> {
        self.lines.as_deref().map(|lines| &lines[side as usize])
    }

    fn line_mut(&mut self, side: Side) -> &mut Line {
        &mut self.lines.get_or_insert_default()[side as usize]
    }
}

fn told(waiter: Waiter, error: &LockError) -> super::Told {
    super::Told {
        slot: waiter.slot,
        ticket: waiter.ticket,
        answer: Err(error.clone()),
    }
}

const _: () = assert!(CLAIM.as_millis() < POLL.as_millis());
