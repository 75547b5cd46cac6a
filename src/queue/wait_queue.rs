//! The queue of one side of a key, or of the requests that wait for others of their owners.

use std::collections::VecDeque;
use std::mem;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::fairness::FairnessYield;
use super::{Decision, Effect, HandoverLimits, Intent, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::Owner;
use crate::store::{Released, Wakeups};

/// The requests of one side of a key, behind the request that asks the store or holds.
///
/// The mutex of the key's shard protects it. Between calls, requests wait only behind a head: while the side's [`Head`] is `Idle`,
/// the queue is empty. The queue is sorted by ticket, which is the order of arrival.
///
/// The requests that wait for others of their owners are in one as well. It has no head, and so no answer, subscription or turn.
#[derive(Default)]
pub(super) struct WaitQueue {
    /// Boxed: a key has waiters on one side only, usually.
    waiting: Option<Box<WaitList>>,
}

#[derive(Default)]
struct WaitList {
    queue: VecDeque<LocalWaiter>,
    news: LastAnswer,
    /// The subscription of the head, while the head holds and does not listen.
    wakeups: Option<Wakeups>,
    /// The limits of the hold's hand-overs while other processes listen for it.
    turn: Option<HandoverLimits>,
}

/// The last answer of the store about this side.
#[derive(Debug, Clone, Copy, Default)]
struct LastAnswer {
    /// The time of the answer.
    at: Option<Instant>,
    /// The end of the lease that the head waits for.
    held_until: Option<Instant>,
}

/// The state that one head of a queue leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    /// Kept, so that a contended key does not need a new subscription at every turn.
    pub(super) wakeups: Option<Wakeups>,
    pub(super) others: Others,
}

/// The other processes that want the lock, from the answer to the last release of this process.
#[derive(Debug, Default)]
pub(super) enum Others {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The release woke none.
    None,
    /// The release woke some, and the store gives them a turn. So many messages of their releases have come since.
    Served { messages: u32 },
    /// The release woke some, to which this process owes a turn each.
    Owed(Box<FairnessYield>),
}

impl Handoff {
    /// The previous hold was released; its last share ended at `since`.
    pub(super) fn released(&mut self, released: Released, since: Instant) {
        let Released {
            in_line, notified, ..
        } = released;
        // In a store without a line, this process may be one of those that the release woke.
        let listens = !in_line && self.wakeups.is_some();
        self.others = match notified > usize::from(listens) {
            false => Others::None,
            true if in_line => Others::Served { messages: 0 },
            true => Others::Owed(Box::new(FairnessYield::after(notified, listens, since))),
        };
    }

    /// No request takes it over.
    pub(super) fn unused(self) -> Option<Effect> {
        let is_kept = matches!(self.others, Others::Owed(_));
        (is_kept || self.wakeups.is_some()).then(|| Effect::Unused(self))
    }
}

impl From<Option<Wakeups>> for Handoff {
    fn from(wakeups: Option<Wakeups>) -> Self {
        Self {
            wakeups,
            ..Self::default()
        }
    }
}

/// The state of a queue's head: `Idle → Asking → Holding → Releasing → Asking → … → Idle`. An uncontended hold in a store that
/// answers at once is `Idle` after it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// There is no head.
    #[default]
    Idle,
    /// It asks the store.
    Asking,
    /// Its hold is being released. The next request gets the turn when the release was sent, or takes too long.
    Releasing,
    Holding,
}

impl Head {
    /// Whether it asks the store, or releases there.
    pub(super) fn is_in_store(self) -> bool {
        matches!(self, Self::Asking | Self::Releasing)
    }
}

/// A request that waits in this process.
pub(super) struct LocalWaiter {
    pub(super) ticket: u64,
    pub(super) terms: Terms,
    /// When the request came in.
    pub(super) since: Instant,
    pub(super) sender: oneshot::Sender<Result<Decision, LockError>>,
}

impl WaitQueue {
    /// Whether no request has waited since the queue was idle: there is no subscription either, and no limit of its turn.
    pub(super) fn has_not_waited(&self) -> bool {
        self.waiting.is_none()
    }

    /// The number of waiters.
    pub(super) fn len(&self) -> usize {
        let waiting = self.waiting.as_ref();
        waiting.map_or(0, |waiting| waiting.queue.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All waiters, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LocalWaiter> {
        let waiting = self.waiting.as_ref();
        waiting.into_iter().flat_map(|waiting| &waiting.queue)
    }

    pub(super) fn front(&self) -> Option<&LocalWaiter> {
        self.waiting.as_ref()?.queue.front()
    }

    pub(super) fn pop(&mut self) -> Option<LocalWaiter> {
        self.waiting.as_mut()?.queue.pop_front()
    }

    pub(super) fn push(&mut self, waiter: LocalWaiter) {
        let queue = &mut self.waiting().queue;
        #[cfg(test)]
        if exploration::has(Mutant::LastInFirstOut) {
            return queue.push_front(waiter);
        }
        match place(queue, waiter.ticket) {
            Ok(taken) | Err(taken) if taken < queue.len() => queue.insert(taken, waiter),
            _ => queue.push_back(waiter),
        }
    }

    /// Removes all waiters from the queue.
    pub(super) fn take_all(&mut self) -> VecDeque<LocalWaiter> {
        let waiting = self.waiting.as_mut();
        waiting.map_or_else(VecDeque::new, |waiting| mem::take(&mut waiting.queue))
    }

    /// Removes all waiters of an owner from the queue.
    pub(super) fn take_of(&mut self, owner: &Owner) -> Vec<LocalWaiter> {
        let (mut taken, mut place) = (Vec::new(), 0);
        if let Some(WaitList { queue, .. }) = self.waiting.as_deref_mut() {
            while let Some(waiter) = queue.get(place) {
                match waiter.terms.is_of(owner) {
                    true => taken.extend(queue.remove(place)),
                    false => place += 1,
                }
            }
        }
        taken
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<LocalWaiter> {
        let queue = &mut self.waiting.as_mut()?.queue;
        #[cfg(test)]
        if exploration::has(Mutant::LastInFirstOut) {
            let unsorted = queue.iter().position(|waiter| waiter.ticket == ticket)?;
            return queue.remove(unsorted);
        }
        queue.remove(place(queue, ticket).ok()?)
    }

    /// The end of the lease that the head waits for, if it is known.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.waiting.as_ref()?.news.held_until
    }

    /// Whether the store has answered about this side since that instant.
    pub(super) fn has_news_since(&self, since: Instant) -> bool {
        let waiting = self.waiting.as_ref();
        waiting.is_some_and(|waiting| waiting.news.at.is_some_and(|at| at >= since))
    }

    /// Records an answer of the store to the head. `held_until`: the end of another holder's lease.
    pub(super) fn note_answer(&mut self, held_until: Option<Instant>, now: Instant) {
        if held_until.is_some() || self.waiting.is_some() {
            self.waiting().news = LastAnswer {
                at: Some(now),
                held_until,
            };
        }
    }

    /// Keeps the subscription while the head holds. Returns it if no waiter can use it.
    pub(super) fn keep_wakeups(&mut self, wakeups: Option<Wakeups>) -> Option<Wakeups> {
        if wakeups.is_none() || self.is_empty() {
            return wakeups;
        }
        mem::replace(&mut self.waiting().wakeups, wakeups)
    }

    pub(super) fn take_wakeups(&mut self) -> Option<Wakeups> {
        self.waiting.as_mut()?.wakeups.take()
    }

    /// The head is done, and the next waiter, if there is one, gets the turn.
    pub(super) fn next(&mut self, handoff: Handoff) -> Option<Effect> {
        let Some(waiter) = self.pop() else {
            return handoff.unused();
        };
        let intent = Intent {
            mode: waiter.terms.mode,
            owner: waiter.terms.owner.clone(),
            nested: None,
        };
        Some(Effect::Ask(waiter, intent, handoff))
    }

    pub(super) fn turn(&self) -> Option<HandoverLimits> {
        self.waiting.as_ref()?.turn
    }

    pub(super) fn set_turn(&mut self, turn: Option<HandoverLimits>) {
        if turn.is_some() || self.waiting.is_some() {
            self.waiting().turn = turn;
        }
    }

    fn waiting(&mut self) -> &mut WaitList {
        self.waiting.get_or_insert_default()
    }
}

/// The position of the ticket, or the position where it belongs.
fn place(queue: &VecDeque<LocalWaiter>, ticket: u64) -> Result<usize, usize> {
    match queue.back() {
        Some(last) if last.ticket >= ticket => {
            queue.binary_search_by_key(&ticket, |waiter| waiter.ticket)
        }
        _ => Err(queue.len()),
    }
}
