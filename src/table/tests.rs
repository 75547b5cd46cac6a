//! All sequences of events of one key, up to a length.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::hold::{Due, Held, valid_for};
use crate::lock::{Hold, HoldId, Lease, LockKey, LockMode};
use crate::store::HoldStatus;
use crate::telemetry::Route;

mod owners;
mod reads;
mod slots;
mod tasks;
mod waking;

const REQUESTS: u64 = 3;

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Enters(u64, LockMode),
    /// The store answers the question of a request.
    Granted(u64),
    Refused(u64),
    /// The request polls its slot, or is dropped.
    Polls(u64),
    Leaves(u64),
    /// A guard ends.
    Ends(u64),
    /// The task of the side asks, and the store grants or refuses.
    Gives(Side),
    Loses(u64),
    /// More time passes than a grant may be left untaken.
    Passes,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Outside,
    Asks(LockMode),
    Waits(LockMode, Arc<Slot>),
    Holds(NewShare),
    Over,
}

/// One history.
struct World {
    table: Table,
    key: LockKey,
    now: Instant,
    requests: Vec<Place>,
    tasks: Vec<Task>,
    next_hold: u64,
    modes: &'static [LockMode],
}

fn terms(mode: LockMode) -> Terms {
    Terms {
        mode,
        owner: None,
        lease: Lease::default(),
        max_hold: None,
        fenced: false,
        max_waiters: Some(8),
        wait: Duration::from_secs(30),
        route: Route::default(),
    }
}

impl World {
    fn new(now: Instant, modes: &'static [LockMode]) -> Self {
        Self {
            table: Table::new(HandoverLimits::default(), 100, true),
            key: LockKey::new("k"),
            now,
            requests: (0..REQUESTS).map(|_| Place::default()).collect(),
            tasks: Vec::new(),
            next_hold: 100,
            modes,
        }
    }

    /// Everything that may happen now.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (n, place) in (0..).zip(&self.requests) {
            match place {
                Place::Outside => {
                    events.extend(self.modes.iter().map(|mode| Event::Enters(n, *mode)))
                }
                Place::Asks(_) => {
                    events.extend([Event::Granted(n), Event::Refused(n), Event::Leaves(n)])
                }
                Place::Waits(..) => events.extend([Event::Polls(n), Event::Leaves(n)]),
                Place::Holds(_) => events.extend([Event::Ends(n), Event::Loses(n)]),
                Place::Over => {}
            }
        }
        for side in [Side::Exclusive, Side::Read] {
            if self.waiting(side) > 0 {
                events.push(Event::Gives(side));
            }
        }
        events.push(Event::Passes);
        events
    }

    fn hold(&mut self, mode: LockMode) -> Arc<Held> {
        self.next_hold += 1;
        let hold = Hold {
            key: self.key.clone(),
            mode,
            id: HoldId::new(Uuid::nil(), self.next_hold),
        };
        let lease = Lease::default();
        let (route, granted) = (Route::default(), lease.duration());
        let until = self.now + valid_for(granted);
        Arc::new(Held::new(hold, lease, route, None, until))
    }

    /// Whether a hold in this mode may be granted: the store excludes.
    fn is_free(&self, mode: LockMode) -> bool {
        let held = self.requests.iter().filter_map(|place| match place {
            Place::Holds(grant) if !grant.held.is_lost(self.now) => Some(grant.held.hold.mode),
            _ => None,
        });
        let given = self.untaken();
        let mut all = held.chain(given);
        all.all(|other| other == LockMode::Read && mode == LockMode::Read)
    }

    /// The modes of grants that are not taken.
    fn untaken(&self) -> Vec<LockMode> {
        let slots = self.requests.iter().filter_map(|place| match place {
            Place::Waits(_, slot) => slot.given(),
            _ => None,
        });
        slots.collect()
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Enters(n, mode) => {
                let mut slot = None;
                let entered = self.entry(|key| key.enter(n, &terms(mode), &mut slot));
                let place = self.placed(entered.expect("there is room"), mode, slot);
                self.requests[n as usize] = place;
            }
            Event::Granted(n) => {
                let Place::Asks(mode) = std::mem::take(&mut self.requests[n as usize]) else {
                    unreachable!("it asks");
                };
                if !self.is_free(mode) {
                    self.requests[n as usize] = Place::Asks(mode);
                    return;
                }
                let held = self.hold(mode);
                let granted = self.event(|key| key.granted(n, held, &terms(mode)));
                let grant = granted.expect("it is here").expect("it is open");
                self.requests[n as usize] = Place::Holds(grant);
            }
            Event::Refused(n) => {
                let Place::Asks(mode) = std::mem::take(&mut self.requests[n as usize]) else {
                    unreachable!("it asks");
                };
                let (mut slot, news) = (None, (Some(self.now + Duration::from_secs(1)), true));
                let entered = self.entry(|key| key.refused(n, &terms(mode), &mut slot, news));
                let place = self.placed(entered.expect("it may wait"), mode, slot);
                self.requests[n as usize] = place;
            }
            Event::Polls(n) => {
                let Place::Waits(mode, slot) = std::mem::take(&mut self.requests[n as usize])
                else {
                    unreachable!("it waits");
                };
                let polled = slot.poll(&mut Context::from_waker(Waker::noop()));
                self.requests[n as usize] = match polled {
                    Poll::Pending => Place::Waits(mode, slot),
                    Poll::Ready(Taken::Answer(answer)) => {
                        let grant = answer.expect("no error");
                        assert_eq!(grant.held.hold.mode, mode, "it asked for another mode");
                        Place::Holds(grant)
                    }
                    Poll::Ready(Taken::Revoked) => {
                        let mut again = None;
                        let entered = self
                            .entry(|key| key.refused(n, &terms(mode), &mut again, (None, false)));
                        self.placed(entered.expect("it may wait"), mode, again)
                    }
                };
            }
            Event::Leaves(n) => {
                match std::mem::replace(&mut self.requests[n as usize], Place::Over) {
                    Place::Asks(mode) => {
                        self.event(|key| key.left(Side::of(mode), n));
                    }
                    Place::Waits(mode, slot) => {
                        if let Some(grant) = slot.close() {
                            self.end(grant);
                        }
                        self.event(|key| key.left(Side::of(mode), n));
                    }
                    _ => unreachable!("it asks or waits"),
                }
            }
            Event::Ends(n) => {
                let ended = std::mem::replace(&mut self.requests[n as usize], Place::Over);
                let Place::Holds(grant) = ended else {
                    unreachable!("it holds");
                };
                self.end(grant);
            }
            Event::Loses(n) => {
                let Place::Holds(grant) = &self.requests[n as usize] else {
                    unreachable!("it holds");
                };
                let held = grant.held.clone();
                if held.lose() {
                    self.event(|key| key.lost(&held));
                }
            }
            Event::Gives(side) => {
                let next = self.next(side);
                if let Next::Ask { terms, .. } = next
                    && self.is_free(terms.mode)
                {
                    let held = self.hold(terms.mode);
                    let is_taken = self.event(|key| key.given(&held, None));
                    assert_eq!(is_taken, Some(true), "its request is there");
                }
            }
            Event::Passes => {
                self.now += 2 * super::line::CLAIM;
                for side in [Side::Exclusive, Side::Read] {
                    self.next(side);
                }
                assert_eq!(self.untaken(), [], "it has had its time");
            }
        }
        self.check(event);
    }

    /// Whether a task of the table serves a side: not one that was replaced or has ended.
    fn has_task(&self, side: Side) -> bool {
        let has_task = |key: &Key| {
            let line = key.line(side);
            line.is_some_and(|line| line.has_task(side, 0))
        };
        self.table.read(&self.key, has_task).unwrap_or_default()
    }

    fn placed(&mut self, entered: Entered, mode: LockMode, slot: Option<Arc<Slot>>) -> Place {
        match entered {
            Entered::Share(grant) => Place::Holds(grant),
            Entered::Ask { .. } => Place::Asks(mode),
            Entered::Wait { start } => {
                self.tasks.extend(start);
                Place::Waits(mode, slot.expect("a request that waits has one"))
            }
        }
    }

    /// What the present task of a side does. One that was replaced ends.
    fn next(&mut self, side: Side) -> Next {
        let tasks = self.tasks.iter().filter(|task| task.side == side);
        let tasks: Vec<_> = tasks.cloned().collect();
        let Some((last, before)) = tasks.split_last() else {
            return Next::Done;
        };
        for task in before {
            let next = self.event(|key| key.next(task));
            let is_done = matches!(next, None | Some(Next::Done));
            assert!(is_done, "two tasks: {next:?}");
        }
        self.event(|key| key.next(last)).unwrap_or_default()
    }

    fn end(&mut self, grant: NewShare) {
        let NewShare {
            mut held, owner, ..
        } = grant;
        let ended = self.event(|key| key.ended(&held, owner.as_ref(), true));
        if let ShareEnd::Release { awaited } = ended.unwrap_or_default() {
            let (_, question) = held.begin_release(self.now);
            if awaited {
                self.event(|key| key.released(&held, HoldStatus::Held.into()));
            }
            held.finish(question, crate::hold::End::Released);
            assert!(matches!(held.due(self.now), Due::Nothing));
        }
    }

    fn waiting(&self, side: Side) -> usize {
        let waiting = self.table.read(&self.key, |key| key.waiting(side));
        waiting.unwrap_or_default()
    }

    fn event<T>(&mut self, event: impl FnOnce(&mut KeyAt<'_>) -> T) -> Option<T> {
        let (value, out) = self.table.event(&self.key, self.now, event)?;
        self.run(out);
        Some(value)
    }

    fn entry<T>(&mut self, event: impl FnOnce(&mut KeyAt<'_>) -> T) -> T {
        let (value, out) = self.table.entry(&self.key, self.now, event);
        self.run(out);
        value
    }

    fn run(&mut self, out: Out) {
        let Some(others) = out.others else {
            return;
        };
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

    /// What holds between events.
    fn check(&self, event: Event) {
        let held = self.requests.iter().filter_map(|place| match place {
            Place::Holds(grant) if !grant.held.is_lost(self.now) => Some(grant.held.clone()),
            _ => None,
        });
        let held: Vec<_> = held.collect();
        for (n, one) in held.iter().enumerate() {
            for other in &held[n + 1..] {
                let shared = one.hold.mode == LockMode::Read && other.hold.mode == LockMode::Read;
                assert!(shared, "two at once after {event:?}");
            }
        }
        for side in [Side::Exclusive, Side::Read] {
            let waits = self.waiting(side) > 0;
            assert!(
                !waits || self.has_task(side),
                "no task asks for {side:?} after {event:?}"
            );
        }
    }

    /// Lets all of them go, and serves those that wait: the key is forgotten.
    fn finish(mut self, history: &[Event]) {
        for _ in 0..40 {
            for n in 0..REQUESTS {
                let event = match &self.requests[n as usize] {
                    Place::Asks(mode) if self.is_free(*mode) => Event::Granted(n),
                    Place::Asks(_) => Event::Refused(n),
                    Place::Waits(..) => Event::Polls(n),
                    Place::Holds(_) => Event::Ends(n),
                    Place::Outside | Place::Over => continue,
                };
                self.apply(event);
            }
            for side in [Side::Exclusive, Side::Read] {
                self.apply(Event::Gives(side));
            }
        }
        let is_over = |place: &Place| matches!(place, Place::Over | Place::Outside);
        assert!(
            self.requests.iter().all(is_over),
            "a request waits after {history:?}"
        );
        assert_eq!(
            self.table.len(),
            0,
            "the key is not forgotten after {history:?}"
        );
    }
}

/// Runs every history of so many events, each from its beginning.
fn all(modes: &'static [LockMode], length: usize) {
    let begun = Instant::now();
    let mut histories = vec![Vec::new()];
    let mut count = 0;
    while let Some(history) = histories.pop() {
        let mut world = World::new(begun, modes);
        history.iter().for_each(|event| world.apply(*event));
        if history.len() < length {
            for event in world.events() {
                histories.push([&history[..], &[event]].concat());
            }
        }
        world.finish(&history);
        count += 1;
    }
    assert!(count > 1000, "only {count} histories");
}

#[tokio::test(start_paused = true)]
async fn every_history_of_exclusive_requests_serves_all_and_leaves_nothing() {
    all(&[LockMode::Reentrant], 6);
}

#[tokio::test(start_paused = true)]
async fn every_history_of_readers_and_writers_serves_all_and_leaves_nothing() {
    all(&[LockMode::Read, LockMode::Write], 5);
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, is_found};

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_is_never_taken_away_is_found() {
        is_found(Mutant::UntakenKept, || all(&[LockMode::Reentrant], 6));
    }
}
