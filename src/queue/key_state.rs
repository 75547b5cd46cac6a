//! The state machine of one key.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::hold::{LocalHold, LocalHolder};
use super::owners::OwnerRequests;
use super::permits::PermitQueue;
use super::wait_queue::{Handoff, Head, LocalWaiter, WaitQueue};
use super::{At, Decision, Effect, Intent, NewShare, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{LockMode, Owner};
use crate::store::Wakeups;
use crate::watchdog::LiveHold;

mod entering;

use entering::Standing;

/// The holds and the requests of one key in this process.
///
/// The mutex of its shard protects it. A request enters once and is then in exactly one place: it shares a hold (`holds`), it
/// asks the store (its queue's head is `Asking`, or it is counted in `fair` or `permit`, or it is a nested read), it waits in the
/// queue of its side, or it waits for another request of its owner (`owners`). Invariants between calls:
///
/// * A queue that is not empty has a head.
/// * At most one hold that is not detached stands for a `Holding` head.
/// * Every owner with an undecided request is listed in `owners`.
///
/// Every transition returns its effects. They are executed after the mutex is unlocked ([`Queues::apply`]).
///
/// [`Queues::apply`]: super::Queues::apply
#[derive(Default)]
pub(super) struct KeyState {
    pub(super) holds: SmallVec<[LocalHold; 1]>,
    pub(super) exclusive: WaitQueue,
    pub(super) write: WaitQueue,
    pub(super) read: WaitQueue,
    pub(super) permit: PermitQueue,
    /// The number of `Fair` requests that ask the store, where each has its own place.
    pub(super) fair: usize,
    pub(super) owners: OwnerRequests,
}

/// The decision of [`KeyState::enter`].
pub(super) enum Entered {
    Grant(NewShare),
    Ask(Intent),
    /// The ticket, and the receiver of the decision.
    Wait(u64, oneshot::Receiver<Result<Decision, LockError>>),
}

/// The decision of [`KeyState::leave`].
pub(super) enum Left {
    /// The hold continues: others share it, or it was handed over to the next waiter.
    LivesOn(Vec<Effect>),
    /// The hold must be released in the store. Requests of its queue wait until the release was sent; requests of its owner, if
    /// the hold is nested, wait until it is done.
    Release(Option<(Intent, Handoff)>),
}

impl KeyState {
    pub(super) fn is_idle(&self) -> bool {
        self.holds.is_empty()
            && self.fair == 0
            && self.owners.is_empty()
            && self.queues().iter().all(|queue| queue.is_idle())
    }

    pub(super) fn queues(&self) -> [&WaitQueue; 4] {
        [&self.exclusive, &self.write, &self.read, &self.permit.queue]
    }

    /// Whether a request other than a single `Fair` one holds or asks.
    pub(super) fn is_crowded(&self) -> bool {
        !self.holds.is_empty() || self.fair > 1
    }

    pub(super) fn enter(&mut self, terms: &Terms, at: At) -> Result<Entered, LockError> {
        let standing = match self.place(terms, at)? {
            Standing::Grant(grant) => return Ok(Entered::Grant(grant)),
            Standing::Ask(intent) => return Ok(Entered::Ask(intent)),
            waiting => waiting,
        };
        static TICKET: AtomicU64 = AtomicU64::new(0);
        let ticket = TICKET.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let waiter = LocalWaiter {
            ticket,
            terms: terms.clone(),
            since: at.now,
            sender,
        };
        self.put(waiter, standing);
        Ok(Entered::Wait(ticket, receiver))
    }

    /// The rest of the lease that requests of this mode wait for: that of this process's hold, otherwise that of the holder in
    /// the store's last answer to the head of their queue. Of permits, only the store says when the next comes free.
    pub(super) fn remaining(&self, mode: LockMode, now: Instant) -> Option<Duration> {
        let counts = !matches!(mode, LockMode::Permit(_));
        let here = self.holds.iter().filter(|_| counts);
        let here = here.filter_map(|hold| hold.remaining(now));
        here.max().or_else(|| {
            let held_until = self.queue_of(mode).held_until();
            held_until?.checked_duration_since(now)
        })
    }

    /// Whether the store has answered since `since`, so that a time-out is due to other holders and not to a silent store.
    pub(super) fn has_news_since(&self, mode: LockMode, since: Instant) -> bool {
        self.queue_of(mode).has_news_since(since)
    }

    /// The store refused the head of a queue: another holder's lease lasts until then.
    pub(super) fn refused(&mut self, intent: &Intent, until: Option<Instant>, at: At) {
        if intent.nested.is_none() {
            self.queue(intent.mode).hears(until, at.now);
        }
        if let LockMode::Permit(_) = intent.mode {
            self.permit.refused();
        }
    }

    fn put(&mut self, waiter: LocalWaiter, standing: Standing) {
        match standing {
            Standing::BehindOwner => {
                let waiters = self.owners.waiters(&waiter.terms.owner);
                waiters
                    .expect("its owner has a request under way")
                    .push(waiter);
            }
            _ => self.queue(waiter.terms.mode).push(waiter),
        }
    }

    /// The store granted what was asked for.
    pub(super) fn granted(
        &mut self,
        live: Arc<LiveHold>,
        terms: &Terms,
        intent: &Intent,
        wakeups: Option<Wakeups>,
        at: At,
    ) -> (NewShare, Vec<Effect>) {
        let mut hold = LocalHold::new(live, intent.nested.is_some(), at.now);
        let grant = hold.join(terms, at.now);
        let mut decided = Vec::new();
        let mut effects = Vec::new();
        match intent.mode {
            _ if intent.nested.is_some() => effects.extend(wakeups.map(Effect::Unsubscribe)),
            LockMode::Fair => {
                self.fair -= 1;
                effects.extend(wakeups.map(Effect::Unsubscribe));
            }
            LockMode::Read => {
                // All readers that waited behind the one that asked enter with it; readers with other terms ask for themselves.
                for waiter in self.read.take_all() {
                    if hold.suits(&waiter.terms, at.now) {
                        let grant = hold.join(&waiter.terms, at.now);
                        decided.push(waiter.terms.owner.clone());
                        effects.push(Effect::Grant(waiter, grant));
                    } else {
                        self.read.push(waiter);
                    }
                }
                self.read.hears(None, at.now);
                effects.extend(self.read.next(wakeups.into()));
            }
            LockMode::Permit(_) => {
                self.permit.queue.hears(None, at.now);
                effects.extend(self.permit.done(wakeups.into()));
            }
            mode => {
                let queue = self.queue(mode);
                queue.head = Head::Holding;
                // An earlier answer about another holder is out of date.
                queue.hears(None, at.now);
                effects.extend(queue.keep_wakeups(wakeups).map(Effect::Unsubscribe));
            }
        }
        self.holds.push(hold);
        self.decided(&intent.owner, at, &mut effects);
        for owner in decided {
            self.decided(&owner, at, &mut effects);
        }
        (grant, effects)
    }

    /// A request with the turn is done, without a hold.
    pub(super) fn yielded(&mut self, intent: &Intent, mut handoff: Handoff, at: At) -> Vec<Effect> {
        let mut effects = Vec::new();
        match intent.mode {
            _ if intent.nested.is_some() => {
                effects.extend(handoff.wakeups.map(Effect::Unsubscribe));
            }
            LockMode::Fair => {
                self.fair -= 1;
                effects.extend(handoff.wakeups.map(Effect::Unsubscribe));
            }
            LockMode::Permit(_) => effects.extend(self.permit.done(handoff)),
            mode => {
                let queue = self.queue(mode);
                if queue.is_empty() {
                    effects.extend(handoff.take_owed().map(Effect::Owe));
                }
                effects.extend(queue.next(handoff));
            }
        }
        self.decided(&intent.owner, at, &mut effects);
        effects
    }

    /// A waiter gives up. It is returned, to be dropped outside the mutex, unless it has got its decision before.
    pub(super) fn cancel(
        &mut self,
        mode: LockMode,
        owner: &Option<Owner>,
        ticket: u64,
        at: At,
    ) -> (Option<LocalWaiter>, Vec<Effect>) {
        let mut effects = Vec::new();
        if let Some(waiter) = self.queue(mode).remove(ticket) {
            self.decided(owner, at, &mut effects);
            return (Some(waiter), effects);
        }
        (self.owners.remove(owner, ticket), effects)
    }

    /// One share of a hold ends. `pass_on`: the hold may be handed over.
    pub(super) fn leave(
        &mut self,
        live: &Arc<LiveHold>,
        holder: &LocalHolder,
        pass_on: bool,
        at: At,
    ) -> Left {
        let mut all = self.holds.iter();
        let index = all
            .position(|hold| Arc::ptr_eq(&hold.live, live))
            .expect("the hold of a share is there");
        if self.holds[index].leave(holder) {
            return Left::LivesOn(Vec::new());
        }
        if pass_on && let Some(effects) = self.pass(index, at) {
            return Left::LivesOn(effects);
        }
        let hold = self.holds.swap_remove(index);
        let mode = live.hold.mode;
        if hold.nested {
            self.owners.begin(&holder.owner);
            let intent = Intent {
                mode,
                owner: holder.owner.clone(),
                nested: Some(live.hold.id),
            };
            return Left::Release(Some((intent, Handoff::default())));
        }
        if hold.detached || !matches!(mode, LockMode::Reentrant | LockMode::Write) {
            return Left::Release(None);
        }
        let queue = self.queue(mode);
        if at.at_once && queue.has_not_waited() {
            // No request of this process waits for the release. One that enters before it asks the store itself, is refused,
            // and is woken by the release as that of another process is.
            queue.head = Head::Idle;
            return Left::Release(None);
        }
        queue.head = Head::Asking;
        // This process held the lock until now, so the waiters know a holder.
        queue.hears(None, at.now);
        let intent = Intent {
            mode,
            owner: None,
            nested: None,
        };
        Left::Release(Some((intent, queue.take_wakeups().into())))
    }

    /// Hands a hold without shares over to the next request of its queue, if the limits allow it.
    fn pass(&mut self, index: usize, at: At) -> Option<Vec<Effect>> {
        let hold = &mut self.holds[index];
        let queue = match hold.live.hold.mode {
            LockMode::Reentrant => &mut self.exclusive,
            // After a writer, the waiting readers have the turn.
            LockMode::Write if self.read.is_idle() => &mut self.write,
            _ => return None,
        };
        let turn = queue.turn().unwrap_or(at.pace);
        if !hold.may_pass_to(&queue.front()?.terms, at.now, turn) {
            return None;
        }
        let next = queue.pop()?;
        let owner = next.terms.owner.clone();
        let grant = hold.pass_to(&next.terms, at.now);
        let mut effects = vec![Effect::Grant(next, grant)];
        self.decided(&owner, at, &mut effects);
        Some(effects)
    }

    /// A shared hold was lost: its queue does not wait for its shares any more.
    pub(super) fn lost(&mut self, live: &Arc<LiveHold>, at: At) -> Vec<Effect> {
        let mut all = self.holds.iter_mut();
        let Some(hold) = all.find(|hold| Arc::ptr_eq(&hold.live, live)) else {
            return Vec::new();
        };
        let mode = live.hold.mode;
        if mem::replace(&mut hold.detached, true)
            || !matches!(mode, LockMode::Reentrant | LockMode::Write)
        {
            return Vec::new();
        }
        let queue = self.queue(mode);
        // Until now this process held the lock: that is news for those who wait.
        queue.hears(None, at.now);
        let wakeups = queue.take_wakeups();
        queue.next(wakeups.into()).into_iter().collect()
    }

    pub(super) fn queue(&mut self, mode: LockMode) -> &mut WaitQueue {
        match mode {
            LockMode::Reentrant | LockMode::Fair => &mut self.exclusive,
            LockMode::Write => &mut self.write,
            LockMode::Read => &mut self.read,
            LockMode::Permit(_) => &mut self.permit.queue,
        }
    }

    fn queue_of(&self, mode: LockMode) -> &WaitQueue {
        match mode {
            LockMode::Reentrant | LockMode::Fair => &self.exclusive,
            LockMode::Write => &self.write,
            LockMode::Read => &self.read,
            LockMode::Permit(_) => &self.permit.queue,
        }
    }

    /// A request of the owner is decided: requests that waited for it enter again.
    fn decided(&mut self, owner: &Option<Owner>, at: At, effects: &mut Vec<Effect>) {
        for waiter in self.owners.end(owner) {
            #[cfg(test)]
            if exploration::has(Mutant::SiblingForgotten) {
                mem::forget(waiter);
                continue;
            }
            match self.place(&waiter.terms, at) {
                Ok(Standing::Grant(grant)) => effects.push(Effect::Grant(waiter, grant)),
                Ok(Standing::Ask(intent)) => {
                    effects.push(Effect::Ask(waiter, intent, Handoff::default()));
                }
                Ok(waiting) => self.put(waiter, waiting),
                Err(error) => effects.push(Effect::Refuse(waiter, error)),
            }
        }
    }
}
