//! What holds after each event.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

use super::world::Running;
use super::*;
use crate::hold::Held;

impl World {
    pub(super) fn check(&self) {
        self.holds_exclude_each_other();
        self.each_share_has_one_owner();
        self.each_request_is_in_one_place();
        self.each_task_runs();
        if self.is_closed {
            let waiting = self.table.read(&self.key, |key| key.waiters().count());
            assert_eq!(
                waiting.unwrap_or_default(),
                0,
                "it waits after the shutdown"
            );
        }
        let is_idle = self.table.read(&self.key, Key::is_idle);
        assert_ne!(is_idle, Some(true), "an idle key stays");
        assert_eq!(self.table.len(), usize::from(is_idle.is_some()));
    }

    fn holds_exclude_each_other(&self) {
        let held = self.held();
        for (n, one) in held.iter().enumerate() {
            let mode = one.hold.mode;
            let others = &held[n + 1..];
            match mode {
                LockMode::Permit(limit) => assert!(held.len() <= limit.get() as usize),
                _ => assert!(
                    others
                        .iter()
                        .all(|other| mode == LockMode::Read && other.hold.mode == LockMode::Read),
                    "two at once: {held:?}"
                ),
            }
        }
        // Of several that share a hold, each reads, or all have one owner.
        for held in held {
            let of_it = |place: &&Place| matches!(place, Place::Holds(grant) if Arc::ptr_eq(&grant.held, &held));
            let owners = self.requests.iter().filter(of_it).map(|place| match place {
                Place::Holds(grant) => grant.owner.as_ref(),
                _ => None,
            });
            let owners: Vec<_> = owners.collect();
            let is_of_one = owners
                .iter()
                .all(|owner| owner.is_some() && *owner == owners[0]);
            assert!(
                held.hold.mode == LockMode::Read || owners.len() < 2 || is_of_one,
                "{owners:?} share a hold"
            );
        }
    }

    /// Each grant is a share of a hold in the table, whose end is the duty of the request that has it, and there are no other shares. A
    /// hold that is released is not in the table.
    fn each_share_has_one_owner(&self) {
        let owned = self.shares();
        let of = |held: &Arc<Held>| owned.iter().filter(|one| Arc::ptr_eq(one, held)).count();
        self.table.read(&self.key, |key| {
            for shared in key.holds() {
                assert_eq!(shared.shares(), of(&shared.held), "{:?}", shared.held.hold);
                let is_released = |held: &Arc<Held>| Arc::ptr_eq(held, &shared.held);
                let mut releases = self.releases.iter().map(|release| &release.held);
                assert!(!releases.any(is_released), "it is held and released");
            }
        });
        for held in &owned {
            let in_table = self.table.read(&self.key, |key| {
                let mut holds = key.holds();
                holds.any(|shared| Arc::ptr_eq(&shared.held, held))
            });
            assert_eq!(in_table, Some(true), "{:?} is not in the table", held.hold);
        }
    }

    /// A request asks or waits in the table if it does so in the world, and nowhere else.
    fn each_request_is_in_one_place(&self) {
        for (n, place) in (0..).zip(&self.requests) {
            let found = self.table.read(&self.key, |key| {
                let waits = key.waiters().filter(|waiter| waiter.ticket == n);
                (key.asks(n), waits.count())
            });
            let expected = match place {
                Place::Asks { .. } => (1, 0),
                Place::Waits(_, slot) if slot.waits() => (0, 1),
                _ => (0, 0),
            };
            assert_eq!(
                found.unwrap_or_default(),
                expected,
                "request {n}: {place:?}"
            );
        }
    }

    /// A task that the table counts on runs, and a request that waits has one.
    fn each_task_runs(&self) {
        for (n, place) in (0..).zip(&self.requests) {
            for side in Side::ALL {
                let waits = matches!(place, Place::Waits(terms, slot) if Side::of(terms.mode) == side && slot.waits());
                let has_task = self.has_task(side, n);
                assert!(has_task || !waits, "no task asks for request {n}");
                let runs = |running: &Running| {
                    running.task.side == side
                        && self.serves(running)
                        && running.task.only().is_none_or(|only| only == n)
                };
                assert!(
                    !has_task || self.tasks.iter().any(runs),
                    "the task of {side:?} is gone"
                );
            }
        }
        let serving = self.tasks.iter().filter(|running| self.serves(running));
        let of_side = serving.filter(|running| running.task.only().is_none());
        for side in [Side::Exclusive, Side::Read] {
            let tasks = of_side.clone().filter(|running| running.task.side == side);
            assert!(tasks.count() <= 1, "two tasks of {side:?}");
        }
    }

    fn has_task(&self, side: Side, n: u64) -> bool {
        let has_task = |key: &Key| key.line(side).is_some_and(|line| line.has_task(side, n));
        self.table.read(&self.key, has_task).unwrap_or_default()
    }

    /// Whether it was not replaced.
    pub(super) fn serves(&self, running: &Running) -> bool {
        let task = &running.task;
        let serves = |key: &Key| key.line(task.side).is_some_and(|line| line.is_task(task));
        self.table.read(&self.key, serves).unwrap_or_default()
    }

    /// Two worlds in one state have the same future.
    pub(super) fn state(&self) -> u64 {
        let mut state = Digest(DefaultHasher::new());
        self.table.read(&self.key, |key| {
            write!(state, "{key:?}").expect("it takes all")
        });
        for running in &self.tasks {
            write!(state, "{running:?}{}", self.serves(running)).expect("it takes all");
        }
        let Self {
            now,
            requests,
            releases,
            is_closed,
            ..
        } = self;
        write!(state, "{now:?}{requests:?}{releases:?}{is_closed}").expect("it takes all");
        state.0.finish()
    }

    /// Lets all of them go, and serves those that wait, for which no time must pass: the key is forgotten.
    pub(super) fn finish(mut self) {
        for _ in 0..20 {
            let before = self.history.len();
            self.serve();
            self.check();
            if self.is_over() {
                assert_eq!(self.table.len(), 0, "the key is not forgotten");
                return;
            }
            if self.history.len() == before {
                let waits = |place: &Place| matches!(place, Place::Waits(_, slot) if slot.waits());
                assert!(
                    !self.requests.iter().any(waits),
                    "nothing wakes the task of a request: {:?}, {:?}",
                    self.requests,
                    self.tasks
                );
                // They wait for requests that are gone.
                self.tasks.iter_mut().for_each(|task| task.sleeps = false);
            }
        }
        panic!("it does not end: {:?}, {:?}", self.requests, self.tasks);
    }

    fn is_over(&self) -> bool {
        let is_over = |place: &Place| matches!(place, Place::Over | Place::Outside);
        self.requests.iter().all(is_over) && self.tasks.is_empty() && self.releases.is_empty()
    }

    fn serve(&mut self) {
        for n in 0..self.requests.len() as u64 {
            let event = match &self.requests[n as usize] {
                Place::Asks { terms, .. } if self.is_free(terms.mode) => Event::Granted(n),
                Place::Asks { .. } => Event::Refused(n),
                Place::Waits(_, slot) if slot.waits() => continue,
                Place::Waits(..) => Event::Polls(n),
                Place::Holds(_) => Event::Ends(n),
                Place::Outside | Place::Over => continue,
            };
            self.happens(event);
        }
        while !self.releases.is_empty() {
            self.happens(Event::Released(0));
        }
        for index in (0..self.tasks.len()).rev() {
            if self.tasks[index].looks() {
                self.happens(Event::Looks(index));
            }
            // It may have ended.
            if let Some(Running {
                asks: Some((_, terms)),
                ..
            }) = self.tasks.get(index)
            {
                let event = match self.is_free(terms.mode) {
                    true => Event::Gives(index),
                    false => Event::Refuses(index),
                };
                self.happens(event);
            }
        }
    }
}

/// The history that leads to a failure.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.history);
        }
    }
}

/// A hash of what is written.
struct Digest(DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
