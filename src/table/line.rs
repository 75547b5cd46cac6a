//! The requests that wait for one side of a key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Out, Slot, Terms};
use crate::hold::Held;
use crate::lock::LockMode;

/// How long a request may leave a grant untaken before it goes to another request.
pub(crate) const CLAIM: Duration = Duration::from_millis(250);

/// The sides of a key. Requests of one side wait in one line, and one task asks for them; in a fair queue each has its own place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// `Reentrant` and `Write`, or permits.
    Exclusive,
    Read,
    Fair,
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::Exclusive, Self::Read, Self::Fair];

    pub(crate) fn of(mode: LockMode) -> Self {
        match mode {
            LockMode::Reentrant | LockMode::Write | LockMode::Permit(_) => Self::Exclusive,
            LockMode::Read => Self::Read,
            LockMode::Fair => Self::Fair,
        }
    }
}

/// What the task of a contended key does next.
#[derive(Debug, Default)]
pub(crate) enum Next {
    /// Ask the store in the place of this request. `after`: until then, others ask first, unless a wake-up comes.
    Ask {
        ticket: u64,
        terms: Terms,
        after: Option<Instant>,
        /// How many others wait.
        behind: usize,
    },
    /// Wait until then, or until it is woken. If the process itself holds the key: look whether the store still carries that.
    Wait {
        until: Instant,
        holds: Option<Arc<Held>>,
    },
    /// No request waits, but a grant is not taken yet: look again then.
    Idle { until: Instant },
    /// No request waits: the task ends.
    #[default]
    Done,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Its number among all requests of the client, by which it stands in line.
    pub(super) ticket: u64,
    pub(super) terms: Terms,
    pub(super) since: Instant,
    pub(super) slot: Arc<Slot>,
    /// The store has its place, in a fair queue.
    pub(super) placed: bool,
    /// Its task asks for it, in a fair queue, and the store wakes it.
    pub(super) is_asked_for: bool,
}

/// A task that asks for one side of a key.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) side: Side,
    /// That of the request which it was started for. In a fair queue it asks for no other.
    pub(crate) ticket: u64,
    /// Notified when it has something to do.
    pub(crate) work: Arc<Notify>,
}

impl Task {
    /// The only request that it asks for, in a fair queue.
    pub(crate) fn only(&self) -> Option<u64> {
        (self.side == Side::Fair).then_some(self.ticket)
    }
}

/// A grant that a request has been given, and may not have taken yet.
#[derive(Debug)]
struct Given {
    ticket: u64,
    slot: Arc<Slot>,
    at: Instant,
}

/// The line of one side.
///
/// While a request waits, or a grant is not taken, there is a task, which ends only by [`Next::Done`]; in a fair queue each waiter has
/// one. Waiters are sorted by ticket.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: VecDeque<Waiter>,
    given: Vec<Given>,
    tasks: SmallVec<[Task; 1]>,
    /// When the store last answered, and when the lease of the holder ends of which it told.
    answered: Option<Instant>,
    held_until: Option<Instant>,
    /// The task has something in the store, and with it perhaps a place in line: the number of its attempt, if a request has asked with it.
    /// Earlier numbers have better places.
    pub(super) asks: Option<u64>,
    /// The task hears the messages of releases.
    pub(super) listens: bool,
    /// Clients outside of the line wait: the next hold is handed over a few times only.
    pub(super) yields: bool,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether it is as if it had just been made.
    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.given.is_empty() && self.tasks.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter()
    }

    pub(super) fn get(&self, index: usize) -> &Waiter {
        &self.waiters[index]
    }

    /// Puts a request where its ticket belongs.
    pub(super) fn push(&mut self, waiter: Waiter) {
        let place = self
            .waiters
            .partition_point(|other| other.ticket < waiter.ticket);
        self.waiters.insert(place, waiter);
    }

    /// A request is over.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        self.given.retain(|given| given.ticket != ticket);
        self.waiters.remove(self.place(ticket)?)
    }

    fn place(&self, ticket: u64) -> Option<usize> {
        let by_ticket = |waiter: &Waiter| waiter.ticket.cmp(&ticket);
        self.waiters.binary_search_by(by_ticket).ok()
    }

    /// Whether this request waits.
    pub(super) fn has(&self, ticket: u64) -> bool {
        self.place(ticket).is_some()
    }

    /// Takes a request out that gets a grant now.
    pub(super) fn give(&mut self, index: usize, now: Instant) -> Waiter {
        let waiter = self.waiters.remove(index).expect("it is there");
        self.given.push(Given {
            ticket: waiter.ticket,
            slot: waiter.slot.clone(),
            at: now,
        });
        waiter
    }

    /// Takes all requests out, whose answer is no grant.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Waiter> {
        self.waiters.drain(..)
    }

    /// Takes grants away that were not taken for [`CLAIM`]. Returns when to look again.
    pub(super) fn revoke(&mut self, now: Instant, out: &mut Out) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        self.given.retain(|given| {
            if !given.slot.is_untaken() {
                return false;
            }
            let until = given.at + CLAIM;
            if until <= now
                && let Some(grant) = given.slot.revoke(given.ticket)
            {
                out.others().untaken.push(grant);
                return false;
            }
            // It may be on its way to the slot.
            let until = until.max(now + CLAIM / 2);
            next = Some(next.map_or(until, |next| next.min(until)));
            true
        });
        next
    }

    /// The store has refused this request of a fair queue, and has its place. Returns whether that is new.
    pub(super) fn placed(&mut self, ticket: u64) -> bool {
        let place = self.place(ticket);
        place.is_some_and(|place| !std::mem::replace(&mut self.waiters[place].placed, true))
    }

    /// The store has answered.
    pub(super) fn news(&mut self, now: Instant, held_until: Option<Instant>) {
        self.answered = self.answered.max(Some(now));
        self.held_until = held_until;
    }

    /// The store has refused the task since it last granted.
    pub(super) fn was_refused(&self) -> bool {
        self.held_until.is_some()
    }

    pub(super) fn has_news_since(&self, since: Instant) -> bool {
        self.answered.is_some_and(|answered| answered >= since)
    }

    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    /// Starts a task for the request with this ticket.
    pub(super) fn start(&mut self, side: Side, ticket: u64) -> Task {
        let work = Arc::default();
        let task = Task { side, ticket, work };
        self.tasks.push(task.clone());
        task
    }

    /// Whether a task asks for a request with this ticket, or will.
    pub(super) fn has_task(&self, side: Side, ticket: u64) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|task| side != Side::Fair || task.ticket == ticket)
    }

    pub(super) fn is_task(&self, task: &Task) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|other| Arc::ptr_eq(&other.work, &task.work))
    }

    /// The task has ended.
    pub(super) fn end_task(&mut self, task: &Task) {
        self.tasks
            .retain(|other| !Arc::ptr_eq(&other.work, &task.work));
        if self.tasks.is_empty() {
            (self.asks, self.listens) = (None, false);
        }
    }

    /// If no request waits, and each grant is taken, no task is needed.
    pub(super) fn settle(&mut self, out: &mut Out) {
        if self.waiters.is_empty() && self.given.is_empty() {
            self.replace_tasks(out);
            (self.asks, self.listens) = (None, false);
        }
    }

    /// The present tasks end when they look for their next step.
    pub(super) fn replace_tasks(&mut self, out: &mut Out) {
        self.wake(out);
        self.tasks.clear();
    }

    /// The task of this request in a fair queue asks for it, or waits for something in this process.
    pub(super) fn asks_for(&mut self, ticket: u64, asks: bool) {
        if let Some(place) = self.place(ticket) {
            self.waiters[place].is_asked_for = asks;
        }
    }

    /// Wakes the task of the first request in a fair queue whose place the store does not have: the others wait for that.
    pub(super) fn wake_next(&self, out: &mut Out) {
        if let Some(next) = self.waiters.iter().find(|waiter| !waiter.placed) {
            self.wake_one(Side::Fair, next.ticket, out);
        }
    }

    /// Wakes the task of this request in a fair queue.
    pub(super) fn wake_one(&self, side: Side, ticket: u64, out: &mut Out) {
        let mut tasks = self.tasks.iter();
        let of_it = |task: &&Task| side == Side::Fair && task.ticket == ticket;
        if let Some(task) = tasks.find(of_it) {
            out.others().wake.push(task.work.clone());
        }
    }

    /// Wakes the tasks that wait for something in this process.
    pub(super) fn wake(&self, out: &mut Out) {
        let asks = |task: &Task| {
            let place = task.only().and_then(|ticket| self.place(ticket));
            place.is_some_and(|place| self.waiters[place].is_asked_for)
        };
        let mut tasks = self.tasks.iter().filter(|task| !asks(task)).peekable();
        if tasks.peek().is_some() {
            let tasks = tasks.map(|task| task.work.clone());
            out.others().wake.extend(tasks);
        }
    }
}
