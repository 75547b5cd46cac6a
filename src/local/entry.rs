//! The state machine of one key.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Admission, Joined, Pace, Terms};
use crate::error::LockError;
use crate::keeper::{LiveHold, Phase};
use crate::lock::{FencingToken, HoldId, Lease, LockFamily, LockMode, Owner};

/// Who holds and who waits for one key, in this process.
#[derive(Default)]
pub(super) struct Entry {
    active: Vec<Active>,
    exclusive: Lane,
    write: Lane,
    read: Lane,
    /// How many `Fair` callers are asking the store.
    fair: usize,
}

/// A hold and those who share it.
struct Active {
    live: Arc<LiveHold>,
    sharers: Vec<Sharer>,
    granted: Instant,
    /// How many times it was passed on.
    passed: u32,
    /// The token of its present holder.
    token: Option<FencingToken>,
    /// Its owner reads under its own write: nobody joins.
    nested: bool,
    /// It was lost: its lane has gone on without it.
    detached: bool,
}

/// Whoever has a share in a hold, and until when it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharer {
    pub(super) owner: Option<Owner>,
    pub(super) limit: Option<Instant>,
}

/// One side's queue.
#[derive(Default)]
struct Lane {
    voice: Voice,
    queue: VecDeque<Waiter>,
}

/// What the front of a lane does.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Voice {
    #[default]
    Idle,
    /// It asks the store, or is releasing there; the others wait for it.
    Asking,
    /// It holds.
    Holding,
}

struct Waiter {
    ticket: u64,
    terms: Terms,
    sender: oneshot::Sender<Admission>,
}

/// What [`Entry::enter`] decides.
pub(super) enum Entered {
    Joined(Joined),
    /// Ask the store; `Some`: with the id of this write hold, to read under it.
    Ask(Option<HoldId>),
    Queued(u64, oneshot::Receiver<Admission>),
}

/// What a waiter is to be given.
pub(super) enum Delivery {
    Share(oneshot::Sender<Admission>, Joined),
    Turn(oneshot::Sender<Admission>, LockMode),
}

/// What [`Entry::leave`] decides.
pub(super) enum Left {
    /// Others share the hold: it lives on.
    Shared,
    /// The hold passes to the next in line.
    Passed(Vec<Delivery>),
    /// The hold is to be released in the store. `true`: the lane waits for that.
    Last(bool),
}

impl Entry {
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
            && self.fair == 0
            && [&self.exclusive, &self.write, &self.read]
                .iter()
                .all(|lane| lane.voice == Voice::Idle && lane.queue.is_empty())
    }

    pub(super) fn enter(
        &mut self,
        terms: &Terms,
        pace: &Pace,
        now: Instant,
    ) -> Result<Entered, LockError> {
        if let Some(entered) = self.reenter(terms, now)? {
            return Ok(entered);
        }
        if terms.mode == LockMode::Fair {
            // A caller that does not wait asks once; it is never one waiter too many.
            if terms.max_waiters > 0 && self.fair >= terms.max_waiters {
                return Err(LockError::Overloaded);
            }
            self.fair += 1;
            return Ok(Entered::Ask(None));
        }
        if terms.mode == LockMode::Read
            && let Some(joined) = self.share_read(terms, pace, now)
        {
            return Ok(Entered::Joined(joined));
        }
        let retry_after = self
            .active
            .first()
            .map(|active| active.live.deadline().saturating_duration_since(now));
        let lane = self.lane(terms.mode);
        if lane.voice == Voice::Idle && lane.queue.is_empty() {
            lane.voice = Voice::Asking;
            return Ok(Entered::Ask(None));
        }
        if terms.max_waiters == 0 {
            return Err(LockError::Busy { retry_after });
        }
        if lane.queue.len() >= terms.max_waiters {
            return Err(LockError::Overloaded);
        }
        static TICKET: AtomicU64 = AtomicU64::new(0);
        let ticket = TICKET.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lane.queue.push_back(Waiter {
            ticket,
            terms: terms.clone(),
            sender,
        });
        Ok(Entered::Queued(ticket, receiver))
    }

    /// Joins what the owner holds already.
    fn reenter(&mut self, terms: &Terms, now: Instant) -> Result<Option<Entered>, LockError> {
        if terms.owner.is_none() {
            return Ok(None);
        }
        let same = |mode: LockMode| {
            mode == terms.mode
                || mode.family() == LockFamily::Exclusive
                    && terms.mode.family() == LockFamily::Exclusive
        };
        if let Some(active) = self.owned(&terms.owner, same) {
            if active.live.is_lost() {
                return Err(LockError::Lost);
            }
            if terms.fenced && active.token.is_none() {
                return Err(LockError::Invalid(
                    "the owner holds this key without a fencing token: ask for one at the outermost acquisition",
                ));
            }
            return Ok(Some(Entered::Joined(active.join(terms, now))));
        }
        match terms.mode {
            LockMode::Read => Ok(self
                .owned(&terms.owner, |mode| mode == LockMode::Write)
                .map(|write| Entered::Ask(Some(write.live.hold.id)))),
            LockMode::Write
                if self
                    .owned(&terms.owner, |mode| mode == LockMode::Read)
                    .is_some() =>
            {
                Err(LockError::Upgrade)
            }
            _ => Ok(None),
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
    fn share_read(&mut self, terms: &Terms, pace: &Pace, now: Instant) -> Option<Joined> {
        let writer_waits = self.write.voice == Voice::Asking || !self.write.queue.is_empty();
        if writer_waits {
            return None;
        }
        self.active
            .iter_mut()
            .find(|active| {
                active.live.hold.mode == LockMode::Read
                    && !active.nested
                    && now < active.granted + pace.share_window
                    && active.suits(terms, now)
            })
            .map(|active| active.join(terms, now))
    }

    /// The store granted what the front of a lane asked for.
    pub(super) fn granted(
        &mut self,
        live: Arc<LiveHold>,
        terms: &Terms,
        nested: bool,
        now: Instant,
    ) -> (Joined, Vec<Delivery>) {
        let mode = live.hold.mode;
        let mut active = Active {
            token: live.token,
            live,
            sharers: Vec::with_capacity(1),
            granted: now,
            passed: 0,
            nested,
            detached: false,
        };
        let joined = active.join(terms, now);
        let mut deliveries = Vec::new();
        match mode {
            LockMode::Fair => self.fair -= 1,
            LockMode::Read if nested => {}
            LockMode::Read => {
                // All who waited behind the one who asked enter with it; those of other terms ask for themselves.
                let lane = &mut self.read;
                for waiter in mem::take(&mut lane.queue) {
                    if active.suits(&waiter.terms, now) {
                        let joined = active.join(&waiter.terms, now);
                        deliveries.push(Delivery::Share(waiter.sender, joined));
                    } else {
                        lane.queue.push_back(waiter);
                    }
                }
                deliveries.extend(lane.next(mode));
            }
            LockMode::Reentrant | LockMode::Write => {
                let lane = self.lane(mode);
                lane.voice = Voice::Holding;
                deliveries = lane.admit_kin(&mut active, &terms.owner, now);
            }
        }
        self.active.push(active);
        (joined, deliveries)
    }

    /// The front of a lane is done without holding anything: the next one's turn.
    pub(super) fn yielded(&mut self, mode: LockMode) -> Option<Delivery> {
        if mode == LockMode::Fair {
            self.fair -= 1;
            return None;
        }
        self.lane(mode).next(mode)
    }

    /// A waiter gives up before it was given anything.
    pub(super) fn cancel(&mut self, mode: LockMode, ticket: u64) {
        self.lane(mode)
            .queue
            .retain(|waiter| waiter.ticket != ticket);
    }

    /// One share of a hold ends. `pass_on` says how far the hold may be passed on, if at all.
    pub(super) fn leave(
        &mut self,
        live: &Arc<LiveHold>,
        sharer: &Sharer,
        pass_on: Option<(&Pace, Instant)>,
    ) -> Left {
        let index = self
            .active
            .iter()
            .position(|active| Arc::ptr_eq(&active.live, live))
            .expect("a share's hold is active");
        let active = &mut self.active[index];
        let place = active.sharers.iter().position(|present| present == sharer);
        let place = place.expect("a sharer is counted until it leaves");
        active.sharers.swap_remove(place);
        if !active.sharers.is_empty() {
            active.settle_limit();
            return Left::Shared;
        }
        let mode = live.hold.mode;
        if let Some((pace, now)) = pass_on
            && let Some(deliveries) = self.pass(index, pace, now)
        {
            return Left::Passed(deliveries);
        }
        let detached = self.active.swap_remove(index).detached;
        let lane_waits = !detached && matches!(mode, LockMode::Reentrant | LockMode::Write);
        if lane_waits {
            self.lane(mode).voice = Voice::Asking;
        }
        Left::Last(lane_waits)
    }

    /// Passes a hold that has no share left to the next of its lane, if it may.
    fn pass(&mut self, index: usize, pace: &Pace, now: Instant) -> Option<Vec<Delivery>> {
        let readers_wait = self.read.voice == Voice::Asking || !self.read.queue.is_empty();
        let active = &mut self.active[index];
        let lane = match active.live.hold.mode {
            LockMode::Reentrant => &mut self.exclusive,
            // A writer's end is the waiting readers' turn.
            LockMode::Write if !readers_wait => &mut self.write,
            _ => return None,
        };
        let next = lane.queue.front()?;
        if active.passed >= pace.handovers
            || now >= active.granted + pace.handover_time
            || !active.suits(&next.terms, now)
        {
            return None;
        }
        let next = lane.queue.pop_front()?;
        active.passed += 1;
        active.token = active
            .live
            .token
            .map(|first| FencingToken::new(first.value() + u64::from(active.passed)));
        let joined = active.join(&next.terms, now);
        let mut deliveries = vec![Delivery::Share(next.sender, joined)];
        deliveries.extend(lane.admit_kin(active, &next.terms.owner, now));
        Some(deliveries)
    }

    /// A hold was lost while it is still shared: the lane no longer waits for those who share it.
    pub(super) fn lost(&mut self, live: &Arc<LiveHold>) -> Option<Delivery> {
        let active = self
            .active
            .iter_mut()
            .find(|active| Arc::ptr_eq(&active.live, live))?;
        let mode = live.hold.mode;
        if mem::replace(&mut active.detached, true)
            || !matches!(mode, LockMode::Reentrant | LockMode::Write)
        {
            return None;
        }
        self.lane(mode).next(mode)
    }

    fn lane(&mut self, mode: LockMode) -> &mut Lane {
        match mode {
            LockMode::Reentrant | LockMode::Fair => &mut self.exclusive,
            LockMode::Write => &mut self.write,
            LockMode::Read => &mut self.read,
        }
    }
}

impl Lane {
    /// An owner that asked twice at once shares with itself, instead of waiting for itself.
    fn admit_kin(
        &mut self,
        active: &mut Active,
        owner: &Option<Owner>,
        now: Instant,
    ) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        if owner.is_some() {
            for waiter in mem::take(&mut self.queue) {
                if &waiter.terms.owner == owner && (active.token.is_some() || !waiter.terms.fenced)
                {
                    let joined = active.join(&waiter.terms, now);
                    deliveries.push(Delivery::Share(waiter.sender, joined));
                } else {
                    self.queue.push_back(waiter);
                }
            }
        }
        deliveries
    }

    fn next(&mut self, mode: LockMode) -> Option<Delivery> {
        let next = self.queue.pop_front();
        self.voice = match next {
            Some(_) => Voice::Asking,
            None => Voice::Idle,
        };
        next.map(|waiter| Delivery::Turn(waiter.sender, mode))
    }
}

impl Active {
    fn join(&mut self, terms: &Terms, now: Instant) -> Joined {
        let sharer = Sharer {
            owner: terms.owner.clone(),
            limit: terms.max_hold.map(|max_hold| now + max_hold),
        };
        self.sharers.push(sharer.clone());
        self.settle_limit();
        Joined {
            live: self.live.clone(),
            sharer,
            token: self.token,
        }
    }

    /// The hold may live as long as the most patient of those who share it now allows.
    fn settle_limit(&self) {
        let limits = self.sharers.iter().map(|sharer| sharer.limit);
        let longest = limits.reduce(|one, other| Some(one?.max(other?)));
        self.live.set_limit(longest.flatten());
    }

    fn is_shared_by(&self, owner: &Option<Owner>) -> bool {
        self.sharers.iter().any(|sharer| sharer.owner == *owner)
    }

    /// Whether a caller of such terms may be given the hold as it is: alive, with a good part of the lease left, and
    /// renewed as the caller wants it.
    fn suits(&self, terms: &Terms, now: Instant) -> bool {
        self.live.phase() == Phase::Held
            && matches!(terms.lease, Lease::Renewed(_))
            && terms.lease == self.live.lease
            && now + terms.lease.duration() / 3 < self.live.deadline()
            && (!terms.fenced || self.live.token.is_some())
    }
}
