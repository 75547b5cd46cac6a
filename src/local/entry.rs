//! The state machine of one key.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::active::{Active, Sharer};
use super::lane::{Lane, Legacy, Voice, Waiter};
use super::undecided::Undecided;
use super::{Admission, Asker, Joined, Pace, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::keeper::LiveHold;
use crate::lock::{HoldId, LockFamily, LockMode, Owner};
use crate::store::Wakeups;

/// Who holds and who waits for one key, in this process.
#[derive(Default)]
pub(super) struct Entry {
    active: Vec<Active>,
    exclusive: Lane,
    write: Lane,
    read: Lane,
    /// How many `Fair` callers are asking the store.
    fair: usize,
    undecided: Undecided,
    /// Callers that wait for any of several keys, and found this one in use.
    onlookers: Vec<Weak<Notify>>,
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) now: Instant,
    pub(super) pace: Pace,
}

/// What [`Entry::enter`] decides.
pub(super) enum Entered {
    Joined(Joined),
    Ask(Asker),
    Queued(u64, oneshot::Receiver<Result<Admission, LockError>>),
}

/// What a waiter is to be given.
pub(super) enum Delivery {
    Share(Waiter, Joined),
    Turn(Waiter, Asker, Legacy),
    Refusal(Waiter, LockError),
    /// The key may not be in use any more.
    News(Arc<Notify>),
    /// Nobody listens with this any more.
    Silence(Wakeups),
}

/// What [`Entry::leave`] decides.
pub(super) enum Left {
    /// Others share the hold: it lives on.
    Shared,
    /// The hold passes to the next in line.
    Passed(Vec<Delivery>),
    /// The hold is to be released in the store. Somebody waits until that was asked.
    LastOfLane(Legacy),
    /// The hold is to be released in the store. Its owner waits until that is done.
    LastNested(Asker),
    /// The hold is to be released in the store. Nobody waits for that.
    Last,
}

/// Where a caller stands after a look at the state of things.
enum Place {
    Joined(Joined),
    Asking(Asker),
    InLane,
    AmongTwins,
}

impl Entry {
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
            && self.fair == 0
            && self.undecided.is_empty()
            && [&self.exclusive, &self.write, &self.read]
                .iter()
                .all(|lane| lane.is_idle())
    }

    /// Whether anybody but a single `Fair` caller holds or asks.
    pub(super) fn is_crowded(&self) -> bool {
        !self.active.is_empty() || self.fair > 1
    }

    pub(super) fn enter(&mut self, terms: &Terms, at: At) -> Result<Entered, LockError> {
        let place = match self.place(terms, at)? {
            Place::Joined(joined) => return Ok(Entered::Joined(joined)),
            Place::Asking(asker) => return Ok(Entered::Ask(asker)),
            waiting => waiting,
        };
        static TICKET: AtomicU64 = AtomicU64::new(0);
        let ticket = TICKET.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter {
            ticket,
            terms: terms.clone(),
            sender,
        };
        self.put(waiter, place);
        Ok(Entered::Queued(ticket, receiver))
    }

    /// For how long the lock that callers of this mode wait for will be held yet: by this process, or else as the front of
    /// their lane has heard of the store.
    pub(super) fn remaining(&self, mode: LockMode, now: Instant) -> Option<Duration> {
        let here = self.active.iter().map(|active| active.remaining(now)).max();
        here.or_else(|| {
            let lane = match mode {
                LockMode::Reentrant | LockMode::Fair => &self.exclusive,
                LockMode::Write => &self.write,
                LockMode::Read => &self.read,
            };
            lane.held_until()?.checked_duration_since(now)
        })
    }

    /// The front of a lane has heard for how long somebody else will hold the lock yet.
    pub(super) fn refused(&mut self, asker: &Asker, until: Option<Instant>) {
        if asker.nested.is_none() {
            self.lane(asker.mode).hears(until);
        }
    }

    /// Finds the caller its place, and takes it.
    fn place(&mut self, terms: &Terms, at: At) -> Result<Place, LockError> {
        let mut nested = None;
        if terms.owner.is_some() {
            if let Some(joined) = self.rejoin(terms, at.now)? {
                return Ok(Place::Joined(joined));
            }
            nested = self.nested(terms)?;
            if let Some(twins) = self.undecided.twins(&terms.owner) {
                terms.wait_behind(twins.len(), None)?;
                return Ok(Place::AmongTwins);
            }
        }
        if nested.is_none() {
            if terms.mode == LockMode::Fair {
                // A caller that does not wait asks once; it is never one waiter too many. Nor is the only one that asks:
                // nobody knows yet whether it will wait.
                if terms.max_waiters.is_some() && self.fair > 0 {
                    terms.wait_behind(self.fair, None)?;
                }
                self.fair += 1;
            } else {
                if terms.mode == LockMode::Read
                    && let Some(joined) = self.share_read(terms, at)
                {
                    return Ok(Place::Joined(joined));
                }
                let remaining = self.remaining(terms.mode, at.now);
                let lane = self.lane(terms.mode);
                if !lane.is_idle() {
                    terms.wait_behind(lane.len(), remaining)?;
                    self.undecided.begin(&terms.owner);
                    return Ok(Place::InLane);
                }
                lane.voice = Voice::Asking;
            }
        }
        self.undecided.begin(&terms.owner);
        Ok(Place::Asking(Asker {
            mode: terms.mode,
            owner: terms.owner.clone(),
            nested,
        }))
    }

    /// Gives `onlooker` the news of this key, once.
    pub(super) fn watch(&mut self, onlooker: &Arc<Notify>) {
        self.onlookers.retain(|other| other.strong_count() > 0);
        self.onlookers.push(Arc::downgrade(onlooker));
    }

    fn news(&mut self) -> impl Iterator<Item = Delivery> {
        let onlookers = mem::take(&mut self.onlookers).into_iter();
        onlookers.filter_map(|onlooker| onlooker.upgrade().map(Delivery::News))
    }

    fn put(&mut self, waiter: Waiter, place: Place) {
        match place {
            Place::AmongTwins => {
                let twins = self.undecided.twins(&waiter.terms.owner);
                twins.expect("its owner is undecided").push(waiter);
            }
            _ => self.lane(waiter.terms.mode).push(waiter),
        }
    }

    /// Joins what the owner holds already.
    fn rejoin(&mut self, terms: &Terms, now: Instant) -> Result<Option<Joined>, LockError> {
        let same = |mode: LockMode| {
            mode == terms.mode
                || mode.family() == LockFamily::Exclusive
                    && terms.mode.family() == LockFamily::Exclusive
        };
        let Some(active) = self.owned(&terms.owner, same) else {
            return Ok(None);
        };
        if active.live.is_lost() {
            return Err(LockError::Lost);
        }
        if terms.fenced && active.token.is_none() {
            return Err(LockError::Invalid(
                "the owner holds this key without a fencing token: ask for one at the outermost acquisition",
            ));
        }
        Ok(Some(active.join(terms, now)))
    }

    /// The write hold under which the owner asks to read, if there is one.
    fn nested(&mut self, terms: &Terms) -> Result<Option<HoldId>, LockError> {
        match terms.mode {
            LockMode::Read => {
                let write = self.owned(&terms.owner, |mode| mode == LockMode::Write);
                Ok(write.map(|write| {
                    write.read_under = true;
                    write.live.hold.id
                }))
            }
            LockMode::Write => match self.owned(&terms.owner, |mode| mode == LockMode::Read) {
                Some(_) => Err(LockError::Upgrade),
                None => Ok(None),
            },
            LockMode::Reentrant | LockMode::Fair => Ok(None),
        }
    }

    fn owned(
        &mut self,
        owner: &Option<Owner>,
        wanted: impl Fn(LockMode) -> bool,
    ) -> Option<&mut Active> {
        self.active
            .iter_mut()
            .find(|active| wanted(active.live.hold.mode) && active.is_shared_by(owner))
    }

    /// Joins a read hold that is young enough, unless a writer of this process waits.
    fn share_read(&mut self, terms: &Terms, at: At) -> Option<Joined> {
        let writer_waits = self.write.voice == Voice::Asking || !self.write.is_empty();
        if writer_waits {
            return None;
        }
        let mut shared = self.active.iter_mut().filter(|active| {
            active.live.hold.mode == LockMode::Read
                && !active.nested
                && at.now < active.granted + at.pace.share_window
        });
        let shared = shared.find(|active| active.suits(terms, at.now));
        shared.map(|active| active.join(terms, at.now))
    }

    /// The store granted what was asked for.
    pub(super) fn granted(
        &mut self,
        live: Arc<LiveHold>,
        terms: &Terms,
        asker: &Asker,
        ear: Option<Wakeups>,
        at: At,
    ) -> (Joined, Vec<Delivery>) {
        let mut active = Active::new(live, asker.nested.is_some(), at.now);
        let joined = active.join(terms, at.now);
        let mut decided = Vec::new();
        let mut deliveries = Vec::new();
        match asker.mode {
            _ if asker.nested.is_some() => deliveries.extend(ear.map(Delivery::Silence)),
            LockMode::Fair => {
                self.fair -= 1;
                deliveries.extend(ear.map(Delivery::Silence));
            }
            LockMode::Read => {
                // All who waited behind the one who asked enter with it; those of other terms ask for themselves.
                for waiter in self.read.take_all() {
                    if active.suits(&waiter.terms, at.now) {
                        let joined = active.join(&waiter.terms, at.now);
                        decided.push(waiter.terms.owner.clone());
                        deliveries.push(Delivery::Share(waiter, joined));
                    } else {
                        self.read.push(waiter);
                    }
                }
                deliveries.extend(self.read.next(ear.into()));
            }
            mode => {
                let lane = self.lane(mode);
                lane.voice = Voice::Holding;
                // What it has heard of another holder is of the past.
                lane.hears(None);
                deliveries.extend(lane.keep_ear(ear).map(Delivery::Silence));
            }
        }
        // Nearly always the only one, and there may be many keys: a growing vector would make room for four.
        self.active.reserve_exact(1);
        self.active.push(active);
        self.decided(&asker.owner, at, &mut deliveries);
        for owner in decided {
            self.decided(&owner, at, &mut deliveries);
        }
        deliveries.extend(self.news());
        (joined, deliveries)
    }

    /// Somebody whose turn it was is done, without holding anything.
    pub(super) fn yielded(&mut self, asker: &Asker, legacy: Legacy, at: At) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        match asker.mode {
            _ if asker.nested.is_some() => deliveries.extend(legacy.ear.map(Delivery::Silence)),
            LockMode::Fair => {
                self.fair -= 1;
                deliveries.extend(legacy.ear.map(Delivery::Silence));
            }
            mode => deliveries.extend(self.lane(mode).next(legacy)),
        }
        self.decided(&asker.owner, at, &mut deliveries);
        deliveries.extend(self.news());
        deliveries
    }

    /// A waiter gives up. It comes back, to be dropped elsewhere, unless it was given something before.
    pub(super) fn cancel(
        &mut self,
        mode: LockMode,
        ticket: u64,
        at: At,
    ) -> (Option<Waiter>, Vec<Delivery>) {
        let mut deliveries = Vec::new();
        if let Some(waiter) = self.lane(mode).remove(ticket) {
            self.decided(&waiter.terms.owner, at, &mut deliveries);
            deliveries.extend(self.news());
            return (Some(waiter), deliveries);
        }
        (self.undecided.remove(ticket), deliveries)
    }

    /// One share of a hold ends. `pass_on` says whether the hold may be passed on.
    pub(super) fn leave(
        &mut self,
        live: &Arc<LiveHold>,
        sharer: &Sharer,
        pass_on: bool,
        at: At,
    ) -> Left {
        let mut all = self.active.iter();
        let index = all
            .position(|active| Arc::ptr_eq(&active.live, live))
            .expect("a share's hold is active");
        if self.active[index].leave(sharer) {
            return Left::Shared;
        }
        if pass_on && let Some(deliveries) = self.pass(index, at) {
            return Left::Passed(deliveries);
        }
        let active = self.active.swap_remove(index);
        let mode = live.hold.mode;
        if active.nested {
            self.undecided.begin(&sharer.owner);
            return Left::LastNested(Asker {
                mode,
                owner: sharer.owner.clone(),
                nested: Some(live.hold.id),
            });
        }
        if active.detached || !matches!(mode, LockMode::Reentrant | LockMode::Write) {
            return Left::Last;
        }
        let lane = self.lane(mode);
        lane.voice = Voice::Asking;
        Left::LastOfLane(lane.take_ear().into())
    }

    /// Passes a hold that has no share left to the next of its lane, if it may.
    fn pass(&mut self, index: usize, at: At) -> Option<Vec<Delivery>> {
        let active = &mut self.active[index];
        let lane = match active.live.hold.mode {
            LockMode::Reentrant => &mut self.exclusive,
            // A writer's end is the waiting readers' turn.
            LockMode::Write if self.read.is_idle() => &mut self.write,
            _ => return None,
        };
        if !active.may_pass_to(&lane.front()?.terms, at) {
            return None;
        }
        let next = lane.pop()?;
        let owner = next.terms.owner.clone();
        let joined = active.pass_to(&next.terms, at.now);
        let mut deliveries = vec![Delivery::Share(next, joined)];
        self.decided(&owner, at, &mut deliveries);
        Some(deliveries)
    }

    /// A hold was lost while it is still shared: the lane no longer waits for those who share it.
    pub(super) fn lost(&mut self, live: &Arc<LiveHold>) -> Vec<Delivery> {
        let mut all = self.active.iter_mut();
        let Some(active) = all.find(|active| Arc::ptr_eq(&active.live, live)) else {
            return Vec::new();
        };
        let mode = live.hold.mode;
        if mem::replace(&mut active.detached, true)
            || !matches!(mode, LockMode::Reentrant | LockMode::Write)
        {
            return Vec::new();
        }
        let lane = self.lane(mode);
        let ear = lane.take_ear();
        let next = lane.next(ear.into());
        next.into_iter().chain(self.news()).collect()
    }

    fn lane(&mut self, mode: LockMode) -> &mut Lane {
        match mode {
            LockMode::Reentrant | LockMode::Fair => &mut self.exclusive,
            LockMode::Write => &mut self.write,
            LockMode::Read => &mut self.read,
        }
    }

    /// A request of the owner has been answered: its twins come in anew.
    fn decided(&mut self, owner: &Option<Owner>, at: At, deliveries: &mut Vec<Delivery>) {
        for twin in self.undecided.end(owner) {
            #[cfg(test)]
            if exploration::has(Mutant::TwinForgotten) {
                mem::forget(twin);
                continue;
            }
            match self.place(&twin.terms, at) {
                Ok(Place::Joined(joined)) => deliveries.push(Delivery::Share(twin, joined)),
                Ok(Place::Asking(asker)) => {
                    deliveries.push(Delivery::Turn(twin, asker, Legacy::default()));
                }
                Ok(waiting) => self.put(twin, waiting),
                Err(error) => deliveries.push(Delivery::Refusal(twin, error)),
            }
        }
    }
}
