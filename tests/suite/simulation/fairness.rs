//! The order of fair queues, while waiters leave and processes die.

use std::time::Duration;

use tower_distributed_lock::testing::Fault;

use super::flaw::Flaw;
use super::history::History;
use super::line::DEATH;
use super::plan::{Menu, millis};
use super::seeds::{Scenario, Summary};
use super::weather::{POLL, Weather};
use super::world::{Settings, World};

const SCENARIO: Scenario = Scenario {
    name: "fairness",
    schedules: 300,
    run,
};

const PROCESSES: usize = 3;

/// How long a free lock may remain untaken while a request waits, where requests fail. A failed request may keep its place
/// as long as a dead one, and the next in the queue may be cut off for a second, and try twice.
const FAILURE: Duration = DEATH
    .saturating_add(Duration::from_millis(1_000 + 300))
    .saturating_add(POLL);

fn run(settings: Settings) -> History {
    History::of(settings.seed, async {
        let mut fate = fastrand::Rng::with_seed(!settings.seed);
        let death = fate
            .bool()
            .then(|| (fate.usize(..PROCESSES), millis(fate.u64(..4_000))));
        let delay = death.map_or(Duration::ZERO, |_| DEATH);
        let mut world = World::new(
            settings,
            1,
            Some(settings.weather.bound().unwrap_or(FAILURE) + delay),
        );
        let clients = world
            .processes(PROCESSES, (settings.flaw, Menu::Fair), death)
            .await;
        world.end(&clients, Menu::Fair).await
    })
}

fn schedules(test: &str, weather: Weather) -> Summary {
    let seen = SCENARIO.keeps_promises(test, weather);
    seen.has_counted("killed");
    seen
}

#[test]
fn waiters_are_granted_in_order_and_a_dead_one_costs_seconds() {
    let seen = schedules(
        "waiters_are_granted_in_order_and_a_dead_one_costs_seconds",
        Weather::Calm,
    );
    seen.has_counted("cancelled");
}

#[test]
fn a_waiter_that_is_not_woken_keeps_its_place() {
    let seen = schedules("a_waiter_that_is_not_woken_keeps_its_place", Weather::Deaf);
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_request_that_fails_loses_its_own_place_and_no_other() {
    let seen = schedules(
        "a_request_that_fails_loses_its_own_place_and_no_other",
        Weather::Flaky,
    );
    seen.was_struck_by(Fault::Late);
}

#[test]
fn one_seed_is_one_history() {
    SCENARIO.is_determined_by_its_seed([Weather::Calm, Weather::Flaky]);
}

#[test]
fn every_flaw_is_found() {
    SCENARIO.finds(&[
        (Flaw::Barges, "L3", Weather::Calm),
        (Flaw::Silent, "L3", Weather::Calm),
        (Flaw::HonoursTheDead, "L5", Weather::Calm),
        (Flaw::HonoursTheDead, "L2", Weather::Calm),
        (Flaw::Sleepy, "L5", Weather::Calm),
    ]);
}
