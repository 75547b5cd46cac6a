//! All sequences of events of one key, up to a length.

use std::collections::HashSet;

use super::world::Running;
use super::*;
use crate::limits::ANSWER_TIME;
use crate::lock::Owner;
use crate::table::line::CLAIM;

/// The events that histories have.
#[derive(Debug, Clone, Copy)]
struct Plan {
    modes: &'static [LockMode],
    requests: u64,
    /// So many of them are of one owner; the others have none.
    owned: u64,
    /// Requests enter in the order of their numbers. If all of them are alike, other orders differ only for those that are overtaken
    /// between their number and the table.
    in_order: bool,
    /// Some requests do not wait.
    tries: bool,
    /// Requests are dropped before their grant.
    leaves: bool,
    losses: bool,
    /// Releases wake others, outside the line of the store or in it.
    others: bool,
    /// The store fails, and tasks end with their runtime.
    failures: bool,
    closes: bool,
    releases_later: bool,
    /// What time passes at once.
    times: &'static [Duration],
}

const EXCLUSIVE: &[LockMode] = &[LockMode::Reentrant];
const READ_WRITE: &[LockMode] = &[LockMode::Read, LockMode::Write];
const FAIR: &[LockMode] = &[LockMode::Fair];
const TWO_PERMITS: &[LockMode] = &[LockMode::permits(2)];

/// Grants are not taken in time, and questions not answered.
const SHORT: Duration = CLAIM.saturating_mul(2);
/// Releases are not answered in time.
const LONG: Duration = ANSWER_TIME.saturating_mul(2);

const QUIET: Plan = Plan {
    modes: EXCLUSIVE,
    requests: 3,
    owned: 0,
    in_order: true,
    tries: false,
    leaves: true,
    losses: false,
    others: false,
    failures: false,
    closes: false,
    releases_later: true,
    times: &[],
};

const BUSY: Plan = Plan {
    losses: true,
    times: &[SHORT],
    ..QUIET
};

impl Plan {
    fn of(self, modes: &'static [LockMode]) -> Self {
        Self { modes, ..self }
    }

    /// Everything that may happen now.
    fn events(&self, world: &World) -> Vec<Event> {
        let mut events = Vec::new();
        let mut is_turn = true;
        for (n, place) in (0..).zip(&world.requests) {
            match place {
                Place::Outside if is_turn => {
                    // The others come later.
                    is_turn = !self.in_order;
                    let modes = self.modes.iter();
                    events.extend(modes.clone().map(|mode| Event::Enters(n, *mode)));
                    if self.tries {
                        events.extend(modes.map(|mode| Event::Tries(n, *mode)));
                    }
                }
                place => self.of_request(world, n, place, &mut events),
            }
        }
        for (index, release) in world.releases.iter().enumerate() {
            events.push(Event::Released(index));
            if self.others && !release.yields {
                events.extend([Event::WakesOthers(index), Event::WakesOthersInLine(index)]);
            }
        }
        for (index, running) in world.tasks.iter().enumerate() {
            self.of_task(world, index, running, &mut events);
        }
        if ages(world) {
            events.extend(self.times.iter().map(|time| Event::Passes(*time)));
        }
        if self.closes && !world.is_closed {
            events.push(Event::Closes);
        }
        events
    }

    fn of_request(&self, world: &World, n: u64, place: &Place, events: &mut Vec<Event>) {
        match place {
            Place::Asks { terms, .. } => {
                events.push(Event::Refused(n));
                if world.is_free(terms.mode) {
                    events.push(Event::Granted(n));
                }
                if self.failures && terms.max_waiters.is_some() {
                    events.push(Event::Unanswered(n));
                }
            }
            // One that finds nothing changes nothing.
            Place::Waits(_, slot) if !slot.waits() => {
                events.push(Event::Polls(n));
                if self.losses && slot.given().is_some() {
                    events.push(Event::Loses(n));
                }
            }
            Place::Holds(grant) => {
                events.push(Event::Ends(n));
                if self.losses && !grant.held.was_lost() {
                    events.push(Event::Loses(n));
                }
            }
            _ => {}
        }
        if self.leaves && matches!(place, Place::Asks { .. } | Place::Waits(..)) {
            events.push(Event::Leaves(n));
        }
    }

    fn of_task(&self, world: &World, index: usize, running: &Running, events: &mut Vec<Event>) {
        match &running.asks {
            None => events.push(Event::Looks(index)),
            Some((_, terms)) => {
                events.push(Event::Refuses(index));
                if world.is_free(terms.mode) {
                    events.push(Event::Gives(index));
                }
                if self.failures {
                    events.push(Event::Fails(index));
                }
            }
        }
        if self.failures {
            events.push(Event::Abandons(index));
        }
    }

    /// Runs every history of up to so many events, each from its beginning. Of several that lead to one state, only the shortest goes on.
    fn explore(self, most: usize) {
        let begun = Instant::now();
        let owner = Owner::new();
        let mut seen = HashSet::new();
        let mut histories = vec![Vec::new()];
        for length in 0..=most {
            let mut longer = Vec::new();
            for history in histories {
                let mut world = World::with(begun, self.requests, self.releases_later);
                world.owners = vec![owner.clone(); self.owned as usize];
                history.iter().for_each(|event| world.happens(*event));
                world.check();
                if !seen.insert(world.state()) {
                    continue;
                }
                if length < most {
                    let next = self.events(&world).into_iter();
                    longer.extend(next.map(|event| [&history[..], &[event]].concat()));
                }
                world.finish();
            }
            histories = longer;
        }
        assert!(seen.len() > 400, "only {} states", seen.len());
    }
}

/// Whether there is anything for which it matters that time passes.
fn ages(world: &World) -> bool {
    let ages = |place: &Place| match place {
        Place::Asks { .. } | Place::Holds(_) => true,
        Place::Waits(_, slot) => slot.given().is_some(),
        Place::Outside | Place::Over => false,
    };
    !world.releases.is_empty() || world.requests.iter().any(ages)
}

#[tokio::test(start_paused = true)]
async fn every_history_of_exclusive_requests_serves_all_and_leaves_nothing() {
    BUSY.explore(7);
    let plan = Plan {
        in_order: false,
        tries: true,
        ..BUSY
    };
    plan.explore(5);
}

#[tokio::test(start_paused = true)]
async fn every_history_of_readers_and_writers_serves_all_and_leaves_nothing() {
    BUSY.of(READ_WRITE).explore(6);
}

#[tokio::test(start_paused = true)]
async fn every_history_of_a_fair_queue_serves_all_and_leaves_nothing() {
    BUSY.of(FAIR).explore(6);
    BUSY.of(&[LockMode::Fair, LockMode::Reentrant]).explore(5);
}

#[tokio::test(start_paused = true)]
async fn every_history_of_two_permits_serves_all_and_leaves_nothing() {
    let plan = Plan {
        requests: 4,
        ..BUSY
    };
    plan.of(TWO_PERMITS).explore(6);
}

#[tokio::test(start_paused = true)]
async fn every_history_of_two_requests_of_an_owner_serves_all_and_leaves_nothing() {
    let plan = Plan {
        owned: 2,
        losses: true,
        ..QUIET
    };
    plan.explore(7);
    for modes in [READ_WRITE, FAIR, TWO_PERMITS] {
        plan.of(modes).explore(6);
    }
}

#[tokio::test(start_paused = true)]
async fn every_history_of_a_store_that_fails_serves_all_and_leaves_nothing() {
    let failures = Plan {
        failures: true,
        ..QUIET
    };
    let aging = Plan {
        times: &[SHORT],
        ..failures
    };
    aging.explore(6);
    for modes in [READ_WRITE, FAIR, TWO_PERMITS] {
        aging.of(modes).explore(5);
    }
    let owned = Plan {
        owned: 2,
        ..failures
    };
    owned.of(READ_WRITE).explore(5);
    for modes in [EXCLUSIVE, FAIR, TWO_PERMITS] {
        owned.of(modes).explore(6);
    }
}

#[tokio::test(start_paused = true)]
async fn every_history_with_a_shutdown_serves_all_and_leaves_nothing() {
    let plan = Plan {
        closes: true,
        losses: true,
        ..QUIET
    };
    plan.explore(7);
    plan.of(READ_WRITE).explore(5);
    for modes in [FAIR, TWO_PERMITS] {
        plan.of(modes).explore(6);
    }
}

#[tokio::test(start_paused = true)]
async fn every_history_of_releases_that_wake_others_serves_all_and_leaves_nothing() {
    let plan = Plan {
        others: true,
        tries: true,
        leaves: false,
        times: &[LONG],
        ..QUIET
    };
    plan.explore(7);
    plan.of(READ_WRITE).explore(5);
    let at_once = Plan {
        releases_later: false,
        ..plan
    };
    at_once.explore(7);
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, is_found};

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_is_never_taken_away_is_found() {
        is_found(Mutant::UntakenKept, || BUSY.explore(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_unnoticed_is_found() {
        is_found(Mutant::TaskGone, || BUSY.explore(5));
    }
}
