//! The order of fair queues and of lines, while waiters leave and processes die.

use std::time::Duration;

use tower_distributed_lock_testing::Fault;

use super::history::History;
use super::line::DEATH;
use super::plan::{Menu, millis};
use super::seeds::{Scenario, Summary};
use super::weather::{POLL, Weather};
use super::world::{Settings, World};
use crate::support::Flaw;

const QUEUE: Scenario = Scenario {
    name: "fairness",
    schedules: 300,
    run: |settings| run(settings, Menu::Fair),
};

const LINE: Scenario = Scenario {
    run: |settings| run(settings, Menu::Line),
    ..QUEUE
};

const PROCESSES: usize = 3;

/// How long a free lock may remain untaken while a request waits, where requests fail. A failed request may keep its place
/// as long as a dead one, and the next in the queue may be cut off for a second, and try twice.
const FAILURE: Duration = DEATH
    .saturating_add(Duration::from_millis(1_000 + 300))
    .saturating_add(POLL);

fn run(settings: Settings, menu: Menu) -> History {
    History::of(settings.seed, async {
        let mut random = fastrand::Rng::with_seed(!settings.seed);
        let death = random
            .bool()
            .then(|| (random.usize(..PROCESSES), millis(random.u64(..4_000))));
        let delay = death.map_or(Duration::ZERO, |_| DEATH);
        let mut world = World::new(
            settings,
            1,
            Some(settings.weather.bound().unwrap_or(FAILURE) + delay),
        );
        let clients = world
            .processes(PROCESSES, (settings.flaw, menu), death)
            .await;
        world.end(&clients, menu).await
    })
}

fn schedules(of: Scenario, test: &str, weather: Weather) -> Summary {
    let seen = of.keeps_promises(test, weather);
    seen.has_counted("killed");
    seen
}

#[test]
fn waiters_are_granted_in_order_and_a_dead_one_costs_seconds() {
    let seen = schedules(
        QUEUE,
        "waiters_are_granted_in_order_and_a_dead_one_costs_seconds",
        Weather::Calm,
    );
    seen.has_counted("cancelled");
}

#[test]
fn waiters_in_line_are_granted_in_order_and_a_dead_one_costs_seconds() {
    let seen = schedules(
        LINE,
        "waiters_in_line_are_granted_in_order_and_a_dead_one_costs_seconds",
        Weather::Calm,
    );
    seen.has_counted("cancelled");
}

#[test]
fn a_waiter_that_is_not_woken_keeps_its_place() {
    let test = "a_waiter_that_is_not_woken_keeps_its_place";
    let seen = schedules(QUEUE, test, Weather::Deaf);
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_waiter_in_line_that_is_not_woken_keeps_its_place() {
    let test = "a_waiter_in_line_that_is_not_woken_keeps_its_place";
    let seen = schedules(LINE, test, Weather::Deaf);
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_request_that_fails_loses_its_own_place_and_no_other() {
    let test = "a_request_that_fails_loses_its_own_place_and_no_other";
    let seen = schedules(QUEUE, test, Weather::Flaky);
    seen.was_struck_by(Fault::Late);
}

#[test]
fn a_request_that_fails_loses_its_own_place_in_line_and_no_other() {
    let test = "a_request_that_fails_loses_its_own_place_in_line_and_no_other";
    let seen = schedules(LINE, test, Weather::Flaky);
    seen.was_struck_by(Fault::Late);
}

#[test]
fn one_seed_is_one_history() {
    for of in [QUEUE, LINE] {
        of.is_determined_by_its_seed([Weather::Calm, Weather::Flaky]);
    }
}

#[test]
fn every_flaw_is_found() {
    for of in [QUEUE, LINE] {
        of.finds(&[
            (Flaw::Barges, "L3", Weather::Calm),
            (Flaw::Silent, "L3", Weather::Calm),
            (Flaw::HonoursTheDead, "L5", Weather::Calm),
            (Flaw::HonoursTheDead, "L2", Weather::Calm),
            (Flaw::Sleepy, "L5", Weather::Calm),
        ]);
    }
}
