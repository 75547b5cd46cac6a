//! What a process has of one key, and what its store carries.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use uuid::Uuid;

use super::*;
use crate::hold::{End, Held, Question, valid_for};
use crate::lock::{Hold, HoldId, LockKey, Owner};

/// Where a request is.
#[derive(Debug, Default)]
pub(super) enum Place {
    #[default]
    Outside,
    Asks {
        terms: Terms,
        is_beside: bool,
    },
    Waits(Terms, Arc<Slot>),
    Holds(NewShare),
    Over,
}

/// A task that has not ended.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) task: Task,
    /// The request for which it asks the store, while there is no answer.
    pub(super) asks: Option<(u64, Terms)>,
    /// It waits until it is woken, or for a time.
    pub(super) sleeps: bool,
}

impl Running {
    /// Whether it looks for its next step, without the help of time.
    pub(super) fn looks(&mut self) -> bool {
        if self.task.work.notified().now_or_never().is_some() {
            self.sleeps = false;
        }
        self.asks.is_none() && !self.sleeps
    }
}

/// A release without an answer, for which the table waits.
#[derive(Debug)]
pub(super) struct Releasing {
    pub(super) held: Arc<Held>,
    pub(super) question: Question,
    /// The store has answered, and others ask first for a while.
    pub(super) yields: bool,
}

/// What has happened in one history.
pub(super) struct World {
    pub(super) table: Table,
    pub(super) key: LockKey,
    pub(super) now: Instant,
    pub(super) requests: Vec<Place>,
    /// Those of the requests with the lowest numbers: all of them have the same.
    pub(super) owners: Vec<Owner>,
    pub(super) tasks: Vec<Running>,
    pub(super) releases: Vec<Releasing>,
    pub(super) is_closed: bool,
    pub(super) history: Vec<Event>,
    /// The numbers of the holds that the store may carry.
    numbers: BTreeSet<u64>,
}

impl World {
    pub(super) fn new(now: Instant) -> Self {
        Self::with(now, 3, true)
    }

    pub(super) fn with(now: Instant, requests: u64, releases_later: bool) -> Self {
        // The time for which others ask first is random.
        fastrand::seed(1);
        Self {
            table: Table::new(HandoverLimits::default(), 100, releases_later),
            key: LockKey::new("k"),
            now,
            requests: (0..requests).map(|_| Place::default()).collect(),
            owners: Vec::new(),
            tasks: Vec::new(),
            releases: Vec::new(),
            is_closed: false,
            history: Vec::new(),
            numbers: BTreeSet::new(),
        }
    }

    pub(super) fn terms(&self, n: u64, mode: LockMode) -> Terms {
        Terms {
            owner: self.owners.get(n as usize).cloned(),
            ..terms(mode)
        }
    }

    /// A hold that the store has granted. It has the lowest number that is free, so that histories which differ only in earlier holds
    /// lead to the same state.
    pub(super) fn hold(&mut self, mode: LockMode) -> Arc<Held> {
        let number = (100..).find(|number| !self.numbers.contains(number));
        let number = number.expect("there are enough");
        self.numbers.insert(number);
        let hold = Hold {
            key: self.key.clone(),
            mode,
            id: HoldId::new(Uuid::nil(), number),
        };
        let lease = Lease::default();
        let until = self.now + valid_for(lease.duration());
        Arc::new(Held::new(hold, lease, Route::default(), None, until))
    }

    /// The holds of requests, whether they have taken them or not.
    pub(super) fn shares(&self) -> Vec<Arc<Held>> {
        let shares = self.requests.iter().filter_map(|place| match place {
            Place::Holds(grant) => Some(grant.held.clone()),
            Place::Waits(_, slot) => slot.given(),
            _ => None,
        });
        shares.collect()
    }

    /// The same, each hold once, without those that are lost.
    pub(super) fn held(&self) -> Vec<Arc<Held>> {
        let mut held = self.shares();
        held.retain(|held| !held.is_lost(self.now));
        held.sort_by_key(|held| held.hold.id);
        held.dedup_by_key(|held| held.hold.id);
        held
    }

    /// Whether the store may grant a hold in this mode. It may carry a hold whose release is under way, or not.
    pub(super) fn is_free(&self, mode: LockMode) -> bool {
        let held = self.held();
        match mode {
            LockMode::Permit(limit) => held.len() < limit.get() as usize,
            _ => held
                .iter()
                .all(|other| mode == LockMode::Read && other.hold.mode == LockMode::Read),
        }
    }

    pub(super) fn event<T>(&mut self, event: impl FnOnce(&mut KeyAt<'_>) -> T) -> Option<T> {
        let (value, out) = self.table.event(&self.key, self.now, event)?;
        self.run(out);
        Some(value)
    }

    pub(super) fn entry<T>(&mut self, event: impl FnOnce(&mut KeyAt<'_>) -> T) -> T {
        let (value, out) = self.table.entry(&self.key, self.now, event);
        self.run(out);
        value
    }

    /// Executes the effects of an event, as the client does.
    pub(super) fn run(&mut self, out: Out) {
        let Some(others) = out.others else {
            return;
        };
        others.wake.iter().for_each(|task| task.notify_one());
        for told in others.tell {
            match told.slot.give(told.ticket, told.answer) {
                Ok(_) => {}
                Err(Ok(grant)) => self.end(grant),
                Err(Err(_)) => {}
            }
        }
        let untaken = others.untaken.into_iter();
        untaken.for_each(|grant| self.end(grant));
    }

    /// A share ends. If it is the last one, the release of its hold begins.
    pub(super) fn end(&mut self, grant: NewShare) {
        let NewShare { held, owner, .. } = grant;
        let ended = self.event(|key| key.ended(&held, owner.as_ref(), true));
        if let ShareEnd::Release { awaited } = ended.unwrap_or_default() {
            self.release(held, awaited);
        }
    }

    pub(super) fn release(&mut self, mut held: Arc<Held>, awaited: bool) {
        let (_, question, _) = held.begin_release(self.now);
        let yields = false;
        let release = Releasing {
            held,
            question,
            yields,
        };
        match awaited {
            true => self.releases.push(release),
            // No event of the table follows.
            false => self.forget(release),
        }
    }

    /// A release is answered.
    pub(super) fn forget(&mut self, release: Releasing) {
        let Releasing {
            mut held, question, ..
        } = release;
        self.numbers.remove(&held.hold.id.number());
        held.finish(question, End::Released);
    }

    pub(super) fn start(&mut self, task: Task) {
        self.tasks.push(Running {
            task,
            asks: None,
            sleeps: false,
        });
    }

    /// A task looks for its next step, and ends, or asks.
    pub(super) fn look(&mut self, index: usize) -> Next {
        let running = &mut self.tasks[index];
        // Whatever it is woken for, it sees.
        running.looks();
        let task = running.task.clone();
        let next = self.event(|key| key.next(&task)).unwrap_or_default();
        match &next {
            Next::Done => {
                self.tasks.remove(index);
            }
            Next::Ask { ticket, terms, .. } => {
                let running = &mut self.tasks[index];
                (running.asks, running.sleeps) = (Some((*ticket, terms.clone())), false);
            }
            Next::Wait { .. } | Next::Idle { .. } => self.tasks[index].sleeps = true,
        }
        next
    }

    /// The youngest task of a side looks for its next step.
    pub(super) fn next(&mut self, side: Side) -> Next {
        let of_side = |running: &Running| running.task.side == side;
        let last = self.tasks.iter().rposition(of_side);
        last.map_or(Next::Done, |last| self.look(last))
    }
}
