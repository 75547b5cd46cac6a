//! The state machine of one key.

#[cfg(test)]
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::hold::LocalHold;
use super::wait_queue::{Handoff, Head, LocalWaiter, WaitQueue};
use super::{At, Decision, Effect, HandoverLimits, Intent, NewShare, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{LockMode, Owner};
use crate::store::Wakeups;
use crate::watchdog::LiveHold;

mod entering;
mod leaving;
mod releasing;
mod rest;
mod shown;

pub(super) use entering::Placement;
pub(super) use leaving::Left;
use releasing::ReleaseTime;
use rest::Rest;

/// The holds and the requests of one key in this process.
///
/// The mutex of its shard protects it. A request enters once and is then in exactly one place: it shares a hold (`holds`), it
/// asks the store (its queue's head is `Asking`, or it is counted in `fair` or `permit`, or it is a nested read), it waits in the
/// queue of its side, or it waits for another request of its owner (`siblings`). Invariants between calls:
///
/// * A queue that is not empty has a head.
/// * At most one hold that is not detached stands for a `Holding` head.
/// * The turn of a `Releasing` head returns with the end of a release of its side. That is its own, or an earlier one whose turn a
///   request has taken: then the turn returns early. If the head is not `Releasing`, it returns to no request.
/// * Every owner with a request that asks or waits in the queue of its side is listed in `owners`. Requests in `siblings` have
///   such an owner.
/// * There are `holds` in the rest only beside a `hold`.
///
/// Every transition returns its effects. They are executed after the mutex is unlocked ([`Queues::apply`]).
///
/// [`Queues::apply`]: super::Queues::apply
#[derive(Default)]
pub(super) struct KeyState {
    hold: Option<LocalHold>,
    exclusive: Head,
    write: Head,
    read: Head,
    /// When the latest release with a turn began, or the latest question of a head. It is one of the two sides that have such heads:
    /// rarely, both have one.
    in_store: ReleaseTime,
    /// Boxed: most keys have one holder and no waiter, and there may be many keys.
    rest: Option<Box<Rest>>,
}

impl KeyState {
    pub(super) fn is_idle(&self) -> bool {
        let heads = [self.exclusive, self.write, self.read];
        self.hold.is_none()
            && heads.iter().all(|head| *head == Head::Idle)
            && self.rest.as_ref().is_none_or(|rest| rest.is_idle())
    }

    /// The holds of this process.
    pub(super) fn holds(&self) -> impl Iterator<Item = &LocalHold> {
        let rest = self.rest.iter().flat_map(|rest| &rest.holds);
        self.hold.iter().chain(rest)
    }

    fn holds_mut(&mut self) -> impl Iterator<Item = &mut LocalHold> {
        let rest = self.rest.iter_mut().flat_map(|rest| &mut rest.holds);
        self.hold.iter_mut().chain(rest)
    }

    /// Whether a request other than a single `Fair` one holds or asks.
    pub(super) fn is_crowded(&self) -> bool {
        self.hold.is_some() || self.rest.as_ref().is_some_and(|rest| rest.fair > 1)
    }

    /// A request with a place that is not a grant or a question begins to wait. Returns its ticket, and the receiver of its
    /// decision.
    pub(super) fn wait(
        &mut self,
        placement: Placement,
        terms: &Terms,
        at: At,
    ) -> (u64, oneshot::Receiver<Result<Decision, LockError>>) {
        static TICKET: AtomicU64 = AtomicU64::new(0);
        let ticket = TICKET.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let waiter = LocalWaiter {
            ticket,
            terms: terms.clone(),
            since: at.now,
            sender,
        };
        self.put(waiter, placement);
        (ticket, receiver)
    }

    /// A request of the owner is under way.
    pub(super) fn begin(&mut self, owner: &Option<Owner>) {
        if let Some(owner) = owner {
            self.rest().owners.add(owner.number());
        }
    }

    /// The rest of the lease that requests of this mode wait for: that of this process's hold, otherwise that of the holder in
    /// the store's last answer to the head of their queue. Of permits, only the store says when the next comes free.
    pub(super) fn remaining(&self, mode: LockMode, now: Instant) -> Option<Duration> {
        let here = self.holds().filter(|_| !mode.is_permit());
        let here = here.filter_map(|hold| hold.remaining(now));
        here.max().or_else(|| {
            let held_until = self.queue(mode)?.held_until();
            held_until?.checked_duration_since(now)
        })
    }

    /// Whether the store has answered since `since`, so that a time-out is due to other holders and not to a silent store. A
    /// request in `siblings` waits for one in any queue.
    pub(super) fn has_news_since(&self, since: Instant) -> bool {
        let mut queues = self.rest.iter().flat_map(|rest| rest.queues());
        queues.any(|queue| queue.has_news_since(since))
    }

    /// The store refused the head of a queue: another holder's lease lasts until then.
    pub(super) fn refused(&mut self, intent: &Intent, until: Option<Instant>, at: At) {
        if intent.nested.is_none() {
            self.rest().queue(intent.mode).note_answer(until, at.now);
            self.note_in_store(at);
        }
        if intent.mode.is_permit() {
            self.rest().permit.refused();
        }
    }

    fn put(&mut self, waiter: LocalWaiter, placement: Placement) {
        match placement {
            Placement::BehindOwner => self.rest().siblings.push(waiter),
            _ => {
                self.begin(&waiter.terms.owner);
                self.rest().queue(waiter.terms.mode).push(waiter);
            }
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
        let (mut hold, grant) = LocalHold::new(live, intent.nested.is_some(), terms, at.now);
        let mut decided = Vec::new();
        let mut effects = Vec::new();
        match intent.mode {
            _ if intent.nested.is_some() => effects.extend(Handoff::from(wakeups).unused()),
            LockMode::Fair => {
                self.rest().fair -= 1;
                effects.extend(Handoff::from(wakeups).unused());
            }
            LockMode::Read => {
                if let Some(read) = self.queue_mut(LockMode::Read) {
                    // All readers that waited behind the one that asked enter with it; readers with other terms ask for
                    // themselves.
                    for waiter in read.take_all() {
                        if hold.suits(&waiter.terms, at.now) {
                            let grant = hold.join(&waiter.terms, at.now);
                            decided.push(waiter.terms.owner.clone());
                            effects.push(Effect::Grant(waiter, grant));
                        } else {
                            read.push(waiter);
                        }
                    }
                    read.note_answer(None, at.now);
                }
                self.note_in_store(at);
                effects.extend(self.next(LockMode::Read, wakeups.into()));
            }
            LockMode::Permit(limit) => {
                let permit = &mut self.rest().permit;
                permit.queue.note_answer(None, at.now);
                permit.granted(limit.get() as usize, wakeups.into(), &mut effects);
            }
            mode => {
                *self.head(mode) = Head::Holding;
                let unused = match self.queue_mut(mode) {
                    Some(queue) => {
                        // An earlier answer about another holder is out of date.
                        queue.note_answer(None, at.now);
                        queue.keep_wakeups(wakeups)
                    }
                    None => wakeups,
                };
                effects.extend(Handoff::from(unused).unused());
            }
        }
        match self.hold {
            None => self.hold = Some(hold),
            Some(_) => self.rest().holds.push(hold),
        }
        self.decided(&intent.owner, at, &mut effects);
        for owner in decided {
            self.decided(&owner, at, &mut effects);
        }
        // A request with an owner had its place there.
        self.rest.take_if(|rest| rest.is_empty());
        (grant, effects)
    }

    /// A request with the turn is done, without a hold.
    pub(super) fn yielded(&mut self, intent: &Intent, handoff: Handoff, at: At) -> Vec<Effect> {
        let mut effects = Vec::new();
        match intent.mode {
            _ if intent.nested.is_some() => effects.extend(handoff.unused()),
            LockMode::Fair => {
                self.rest().fair -= 1;
                effects.extend(handoff.unused());
            }
            LockMode::Permit(_) => self.rest().permit.done(handoff, &mut effects),
            mode => {
                self.note_in_store(at);
                effects.extend(self.next(mode, handoff));
            }
        }
        self.decided(&intent.owner, at, &mut effects);
        effects
    }

    /// A waiter gives up. It is returned, to be dropped outside the mutex, unless it has got its decision before.
    pub(super) fn cancel(
        &mut self,
        mode: LockMode,
        ticket: u64,
        at: At,
    ) -> (Option<LocalWaiter>, Vec<Effect>) {
        let mut effects = Vec::new();
        let queue = self.queue_mut(mode);
        if let Some(waiter) = queue.and_then(|queue| queue.remove(ticket)) {
            self.decided(&waiter.terms.owner, at, &mut effects);
            return (Some(waiter), effects);
        }
        let rest = self.rest.as_mut();
        let waiter = rest.and_then(|rest| rest.siblings.remove(ticket));
        (waiter, effects)
    }

    /// Sets the limits of the turn that begins.
    pub(super) fn set_turn(&mut self, mode: LockMode, turn: Option<HandoverLimits>) {
        if turn.is_some() || self.rest.is_some() {
            self.rest().queue(mode).set_turn(turn);
        }
    }

    /// The head of a queue is done, and the next waiter gets the turn.
    fn next(&mut self, mode: LockMode, handoff: Handoff) -> Option<Effect> {
        let next = match self.queue_mut(mode) {
            Some(queue) => queue.next(handoff),
            None => handoff.unused(),
        };
        *self.head(mode) = match next {
            Some(Effect::Ask(..)) => Head::Asking,
            _ => Head::Idle,
        };
        next
    }

    /// The head of a queue; that of permits is in [`PermitQueue`].
    fn head(&mut self, mode: LockMode) -> &mut Head {
        match mode {
            LockMode::Reentrant | LockMode::Fair => &mut self.exclusive,
            LockMode::Write => &mut self.write,
            LockMode::Read => &mut self.read,
            LockMode::Permit(_) => unreachable!("permits are asked for side by side"),
        }
    }

    /// The queue of a mode; `None` if the key has no queue.
    /// How many requests in this mode wait.
    pub(super) fn waiting(&self, mode: LockMode) -> usize {
        self.queue(mode).map_or(0, WaitQueue::len)
    }

    fn queue(&self, mode: LockMode) -> Option<&WaitQueue> {
        let rest = self.rest.as_ref()?;
        Some(match mode {
            LockMode::Reentrant | LockMode::Fair => &rest.exclusive,
            LockMode::Write => &rest.write,
            LockMode::Read => &rest.read,
            LockMode::Permit(_) => &rest.permit.queue,
        })
    }

    fn queue_mut(&mut self, mode: LockMode) -> Option<&mut WaitQueue> {
        self.rest.as_mut().map(|rest| rest.queue(mode))
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    pub(super) fn hold_of(&mut self, live: &Arc<LiveHold>) -> Option<&mut LocalHold> {
        self.holds_mut().find(|hold| hold.is(live))
    }

    fn remove(&mut self, live: &Arc<LiveHold>) -> Option<LocalHold> {
        let rest = self.rest.as_mut().map(|rest| &mut rest.holds);
        if let Some(first) = self.hold.take_if(|hold| hold.is(live)) {
            self.hold = rest.and_then(Vec::pop);
            return Some(first);
        }
        let rest = rest?;
        let place = rest.iter().position(|hold| hold.is(live))?;
        Some(rest.swap_remove(place))
    }

    /// A request of the owner is decided: those that waited for it enter again. If the owner has another one under way, they may
    /// find their places where they were.
    fn decided(&mut self, owner: &Option<Owner>, at: At, effects: &mut Vec<Effect>) {
        let (Some(rest), Some(owner)) = (&mut self.rest, owner) else {
            return;
        };
        // That of a request which was granted as it entered is not listed.
        if !rest.owners.contains(owner.number()) {
            return;
        }
        rest.owners.subtract(owner.number());
        for waiter in rest.siblings.take_of(owner) {
            #[cfg(test)]
            if exploration::has(Mutant::SiblingForgotten) {
                mem::forget(waiter);
                continue;
            }
            match self.place(&waiter.terms, at) {
                Ok(Placement::Grant(grant)) => effects.push(Effect::Grant(waiter, grant)),
                Ok(Placement::Ask(intent)) => {
                    self.begin(&intent.owner);
                    effects.push(Effect::Ask(waiter, intent, Handoff::default()));
                }
                Ok(waiting) => self.put(waiter, waiting),
                Err(error) => effects.push(Effect::Refuse(waiter, error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::LockKey;
    use crate::queue::Others;
    use crate::store::{HoldStatus, Released};

    /// A client with a hundred thousand holds keeps as many of these in its maps.
    #[test]
    fn a_key_with_one_holder_is_small() {
        assert_eq!(size_of::<(LockKey, KeyState)>(), 80);
    }

    /// A request has taken its turn, and is done.
    #[tokio::test]
    async fn a_late_release_that_woke_others_leaves_their_turns() {
        let at = At {
            now: Instant::now(),
            handover_limits: HandoverLimits::default(),
            at_once: false,
        };
        let mut handoff = Handoff::default();
        handoff.released(Released::new(HoldStatus::Held, 1), at.now);
        let release = Intent::of_side(LockMode::Reentrant);
        let effects = KeyState::default().released(&release, handoff, at);
        let [Effect::Unused(left)] = &effects[..] else {
            panic!("the turns are forgotten");
        };
        assert!(matches!(left.others, Others::Owed(_)));
    }
}
