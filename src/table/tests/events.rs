//! What happens to a key, by the calls that the client makes.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::store::{HoldStatus, Released};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Enters(u64, LockMode),
    /// A request that does not wait.
    Tries(u64, LockMode),
    /// The store answers the question of a request.
    Granted(u64),
    Refused(u64),
    /// The store has not answered it, so that the request waits, and has no place there.
    Unanswered(u64),
    /// The request polls its slot, and takes what is in it.
    Polls(u64),
    Leaves(u64),
    /// A guard ends.
    Ends(u64),
    /// The hold of a request is lost, which may not have taken it yet.
    Loses(u64),
    /// The store answers the release at this place.
    Released(usize),
    /// The same, and the release has woken others; outside a line, they ask first.
    WakesOthers(usize),
    WakesOthersInLine(usize),
    /// The task at this place looks for its next step.
    Looks(usize),
    /// It asks, and the store answers.
    Gives(usize),
    Refuses(usize),
    Fails(usize),
    /// It ends with its runtime.
    Abandons(usize),
    Passes(Duration),
    /// The client is shut down.
    Closes,
}

impl World {
    /// An event, and what holds after it.
    pub(super) fn apply(&mut self, event: Event) {
        self.happens(event);
        self.check();
    }

    pub(super) fn happens(&mut self, event: Event) {
        self.history.push(event);
        match event {
            Event::Enters(n, mode) => self.enters(n, self.terms(n, mode)),
            Event::Tries(n, mode) => {
                let max_waiters = None;
                let terms = self.terms(n, mode);
                let terms = Terms {
                    max_waiters,
                    ..terms
                };
                self.enters(n, terms);
            }
            Event::Granted(n) => self.granted(n),
            Event::Refused(n) => self.refused(n, true),
            Event::Unanswered(n) => self.refused(n, false),
            Event::Polls(n) => self.polls(n),
            Event::Leaves(n) => self.leaves(n),
            Event::Ends(n) => match std::mem::replace(self.place(n), Place::Over) {
                Place::Holds(grant) => self.end(grant),
                other => unreachable!("it holds: {other:?}"),
            },
            Event::Loses(n) => self.loses(n),
            Event::Released(index) => self.released(index, HoldStatus::Held.into()),
            Event::WakesOthers(index) => {
                self.released(index, Released::new(HoldStatus::Held, 1));
            }
            Event::WakesOthersInLine(index) => {
                self.released(index, Released::new(HoldStatus::Held, 1).in_line(true));
            }
            Event::Looks(index) => {
                self.look(index);
            }
            Event::Gives(index) => self.gives(index),
            Event::Refuses(index) => {
                let task = self.answered(index).0;
                let until = Some(self.now + Duration::from_secs(1));
                self.event(|key| key.line_refused(&task, until));
            }
            Event::Fails(index) => {
                let (task, ticket, _) = self.answered(index);
                self.event(|key| key.failed(task.side, ticket, silent()));
            }
            Event::Abandons(index) => {
                let task = self.tasks.remove(index).task;
                self.event(|key| key.abandoned(&task, &silent()));
            }
            Event::Passes(time) => self.passes(time),
            Event::Closes => self.closes(),
        }
    }

    fn place(&mut self, n: u64) -> &mut Place {
        &mut self.requests[n as usize]
    }

    fn enters(&mut self, n: u64, terms: Terms) {
        let mut slot = None;
        let entered = self.entry(|key| key.enter(n, &terms, &mut slot));
        self.placed(n, terms, entered, slot);
    }

    fn placed(
        &mut self,
        n: u64,
        terms: Terms,
        entered: Result<Entered, LockError>,
        slot: Option<Arc<Slot>>,
    ) {
        *self.place(n) = match entered {
            Ok(Entered::Share(grant)) => {
                assert!(!self.is_closed, "it enters after the shutdown");
                Place::Holds(grant)
            }
            Ok(Entered::Ask { is_beside }) => Place::Asks { terms, is_beside },
            Ok(Entered::Wait { start }) => {
                if let Some(task) = start {
                    self.start(task);
                }
                Place::Waits(terms, slot.expect("a request that waits has one"))
            }
            Err(_) => Place::Over,
        };
    }

    /// Takes the question of a request away, which is answered.
    fn asked(&mut self, n: u64) -> (Terms, bool) {
        match std::mem::replace(self.place(n), Place::Over) {
            Place::Asks { terms, is_beside } => (terms, is_beside),
            other => unreachable!("it asks: {other:?}"),
        }
    }

    fn granted(&mut self, n: u64) {
        let (terms, _) = self.asked(n);
        let held = self.hold(terms.mode);
        let granted = self.event(|key| key.granted(n, held, &terms));
        match granted.expect("the key of a request that asks is here") {
            Ok(grant) => {
                assert!(!self.is_closed, "it is granted after the shutdown");
                *self.place(n) = Place::Holds(grant);
            }
            Err(held) => self.release(held, false),
        }
    }

    fn refused(&mut self, n: u64, is_answered: bool) {
        let (terms, is_beside) = self.asked(n);
        if terms.max_waiters.is_none() {
            self.event(|key| key.left(Side::of(terms.mode), n));
            return;
        }
        let until = is_answered.then_some(self.now + Duration::from_secs(1));
        self.stands(n, terms, (until, is_answered && !is_beside));
    }

    fn stands(&mut self, n: u64, terms: Terms, news: (Option<Instant>, bool)) {
        let mut slot = None;
        let entered = self.entry(|key| key.refused(n, &terms, &mut slot, news));
        self.placed(n, terms, entered, slot);
    }

    fn polls(&mut self, n: u64) {
        let Place::Waits(terms, slot) = std::mem::replace(self.place(n), Place::Over) else {
            unreachable!("it waits");
        };
        match slot.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => *self.place(n) = Place::Waits(terms, slot),
            Poll::Ready(Taken::Revoked) => self.stands(n, terms, (None, false)),
            Poll::Ready(Taken::Answer(answer)) => {
                if let Ok(grant) = answer {
                    *self.place(n) = Place::Holds(grant);
                }
                // Its ticket is dropped.
                self.event(|key| key.left(Side::of(terms.mode), n));
            }
        }
    }

    fn leaves(&mut self, n: u64) {
        let terms = match std::mem::replace(self.place(n), Place::Over) {
            Place::Asks { terms, .. } => terms,
            Place::Waits(terms, slot) => {
                if let Some(grant) = slot.close() {
                    self.end(grant);
                }
                terms
            }
            other => unreachable!("it asks or waits: {other:?}"),
        };
        self.event(|key| key.left(Side::of(terms.mode), n));
    }

    fn loses(&mut self, n: u64) {
        let held = match self.place(n) {
            Place::Holds(grant) => grant.held.clone(),
            Place::Waits(_, slot) => slot.given().expect("it has a grant"),
            other => unreachable!("it has a hold: {other:?}"),
        };
        if held.lose() {
            self.event(|key| key.lost(&held));
        }
    }

    fn released(&mut self, index: usize, released: Released) {
        let mut release = self.releases.remove(index);
        let pause = self.event(|key| key.released(&release.held, released));
        match pause.flatten() {
            Some(_) => {
                release.yields = true;
                self.releases.insert(index, release);
            }
            None => self.forget(release),
        }
    }

    /// Takes the question of a task away, which is answered.
    fn answered(&mut self, index: usize) -> (Task, u64, Terms) {
        let running = &mut self.tasks[index];
        let (ticket, terms) = running.asks.take().expect("it asks");
        (running.task.clone(), ticket, terms)
    }

    fn gives(&mut self, index: usize) {
        let (task, _, terms) = self.answered(index);
        let held = self.hold(terms.mode);
        let is_taken = self.event(|key| key.given(&held, task.only()));
        match is_taken {
            Some(true) => assert!(!self.is_closed, "it is granted after the shutdown"),
            _ => self.release(held, false),
        }
    }

    /// More time passes than a grant may be left untaken. Tasks that sleep look again, and take it away.
    fn passes(&mut self, time: Duration) {
        let looks = |side| {
            let mut tasks = self.tasks.iter();
            tasks.any(|task| task.task.side == side && task.asks.is_none() && self.serves(task))
        };
        let slots = self.requests.iter().filter_map(|place| match place {
            Place::Waits(terms, slot) if looks(Side::of(terms.mode)) => Some(slot.clone()),
            _ => None,
        });
        let mut untaken: Vec<_> = slots.collect();
        untaken.retain(|slot| slot.given().is_some());
        self.now += time;
        for index in (0..self.tasks.len()).rev() {
            if self.tasks[index].asks.is_none() {
                self.look(index);
            }
        }
        let has_grant = untaken.iter().any(|slot| slot.given().is_some());
        assert!(!has_grant, "it has had its time");
    }

    /// Every hold in the table is lost, and released.
    fn closes(&mut self) {
        self.is_closed = true;
        let (holds, outs) = self.table.close();
        outs.into_iter().for_each(|out| self.run(out));
        for held in holds {
            if held.lose() {
                self.event(|key| key.lost(&held));
            }
        }
    }
}

fn silent() -> LockError {
    StoreError::new(StoreErrorKind::Unreachable, "a server is down").into()
}
