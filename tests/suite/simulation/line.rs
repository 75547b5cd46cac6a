//! A model of the fair queue and of the line of the contract, and of waiters that lose their place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, WAITER_LIVENESS};
use tower_distributed_lock::{LockKey, LockMode};

use super::log::Log;
use crate::support::is_in_order;

tokio::task_local! {
    /// The caller of this task. It is not set in background tasks.
    pub(super) static CALLER: usize;
}

/// The waiters in the order in which their first questions arrived: for each key those in `Fair` mode, and those in line.
pub(super) struct Line {
    log: Arc<Log>,
    keys: Mutex<BTreeMap<(LockKey, bool), Vec<Place>>>,
}

/// For how long waiters without a place may go before the line.
const OUTSIDE_TURN: Duration = Duration::from_millis(5);

struct Place {
    id: HoldId,
    /// The last time.
    asked: Instant,
    /// The waiting caller, as long as none of its requests has gone unanswered; `None` if it was cancelled or has
    /// died.
    caller: Option<usize>,
}

impl Place {
    fn is_live(&self) -> bool {
        self.asked.elapsed() < WAITER_LIVENESS
    }

    fn is_of(&self, caller: Option<usize>) -> bool {
        caller.is_some() && self.caller == caller
    }

    fn name(&self) -> String {
        match self.caller {
            Some(caller) => format!("caller {caller}"),
            None => "a client that has gone".into(),
        }
    }
}

impl Line {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            keys: Mutex::default(),
        }
    }

    /// The store refused for `rest`. `free`: the key has no holder.
    pub(super) fn refused(&self, attempt: &Attempt, free: bool, rest: Duration) {
        if !is_in_order(attempt) {
            return;
        }
        // Others may go first: readers before a writer, and for a short time waiters without a place.
        let others_may = match attempt.hold.mode {
            LockMode::Fair => false,
            LockMode::Write => true,
            _ => rest <= OUTSIDE_TURN,
        };
        self.with(&attempt.hold, |line, caller| {
            let id = attempt.hold.id;
            let here = line.iter().position(|place| place.id == id);
            let ahead = &line[..here.unwrap_or(line.len())];
            if free && !others_may && !ahead.iter().any(Place::is_live) {
                let text = format!("{} was free, and refused", attempt.hold.key);
                self.log.violated("L5", text);
            }
            if attempt.patience.is_none() {
                return;
            }
            let mut place = match here {
                None => self.enter(line, &attempt.hold, caller),
                Some(here) if line[here].is_live() => {
                    line[here].asked = Instant::now();
                    return;
                }
                Some(here) => line.remove(here),
            };
            if place.caller.is_some() && !place.is_live() {
                let text = format!("{} let its place lapse", place.name());
                self.log.violated("L3", text);
            }
            place.asked = Instant::now();
            line.push(place);
        });
    }

    /// Adds a place with a new id.
    fn enter(&self, line: &[Place], hold: &Hold, caller: Option<usize>) -> Place {
        self.gives_up(line, hold, caller);
        Place {
            id: hold.id,
            asked: Instant::now(),
            caller,
        }
    }

    /// The store granted, for the first time.
    pub(super) fn granted(&self, attempt: &Attempt) {
        let hold = &attempt.hold;
        self.with(hold, |line, caller| {
            let here = line.iter().position(|place| place.id == hold.id);
            let ahead = &line[..here.unwrap_or(line.len())];
            for first in ahead.iter().filter(|_| is_in_order(attempt)) {
                if first.is_live() || first.caller.is_some() && !first.is_of(caller) {
                    let text = format!("{} was granted past {}", hold.key, first.name());
                    self.log.violated("L3", text);
                }
            }
            self.gives_up(line, hold, caller);
            line.retain(|place| place.id != hold.id);
        });
    }

    /// The store removes the waiter with this id.
    pub(super) fn withdrawn(&self, hold: &Hold) {
        self.with(hold, |line, _| {
            let mut places = line.iter();
            let place = places.find(|place| place.id == hold.id);
            if let Some(place) = place.filter(|place| place.caller.is_some()) {
                let text = format!("{} still waits, and was withdrawn", place.name());
                self.log.violated("L3", text);
            }
            line.retain(|place| place.id != hold.id);
        });
    }

    /// A question of the current caller, or of the task that asks in its place, was not answered: it may lose its place.
    pub(super) fn failed(&self, hold: &Hold) {
        self.with(hold, |line, _| {
            let mut places = line.iter_mut();
            if let Some(place) = places.find(|place| place.id == hold.id) {
                place.caller = None;
            }
        });
        if let Ok(caller) = CALLER.try_get() {
            self.left(caller);
        }
    }

    /// The caller does not wait any more: it was granted, refused or cancelled, or has died.
    pub(super) fn left(&self, caller: usize) {
        let mut keys = self.keys.lock().unwrap();
        for place in keys.values_mut().flatten() {
            if place.caller == Some(caller) {
                place.caller = None;
            }
        }
    }

    /// Checks that a caller keeps its id: with a new id it would move to the end of the queue. A task may ask for further permits
    /// beside its place, for the requests behind the first.
    fn gives_up(&self, line: &[Place], hold: &Hold, caller: Option<usize>) {
        if matches!(hold.mode, LockMode::Permit(_)) {
            return;
        }
        let mut others = line.iter().filter(|place| place.id != hold.id);
        if let Some(place) = others.find(|place| place.is_of(caller)) {
            let text = format!("{} gave up its place for nothing", place.name());
            self.log.violated("L3", text);
        }
    }

    fn with(&self, hold: &Hold, look: impl FnOnce(&mut Vec<Place>, Option<usize>)) {
        if hold.mode != LockMode::Read {
            let mut keys = self.keys.lock().unwrap();
            let order = (hold.key.clone(), hold.mode == LockMode::Fair);
            let line = keys.entry(order).or_default();
            look(line, CALLER.try_get().ok());
        }
    }
}

/// How long a dead waiter may delay the waiters behind it.
pub(super) const DEATH: Duration = WAITER_LIVENESS;
