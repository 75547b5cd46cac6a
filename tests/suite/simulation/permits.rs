//! Permits: never more live holds than the limit, while processes fail, die and lose messages.

use std::time::Duration;

use tower_distributed_lock_testing::Fault;

use super::history::History;
use super::plan::{Menu, millis};
use super::seeds::{Scenario, Summary};
use super::weather::Weather;
use super::world::{Settings, World};
use crate::support::Flaw;

const SCENARIO: Scenario = Scenario {
    name: "permits",
    schedules: 300,
    run,
};

const PROCESSES: usize = 3;

/// How long a free permit may remain untaken if a process has died: it may have been the first in line, and two questions
/// of the next may be under way.
const DEATH: Duration = super::line::DEATH;

fn run(settings: Settings) -> History {
    History::of(settings.seed, async {
        let mut random = fastrand::Rng::with_seed(!settings.seed);
        let death = random.bool().then(|| (0, millis(random.u64(..4_000))));
        let delay = death.map_or(Duration::ZERO, |_| DEATH);
        let mut world = World::new(
            settings,
            1,
            settings.weather.bound().map(|bound| bound + delay),
        );
        let clients = world
            .processes(PROCESSES, (settings.flaw, Menu::Permits), death)
            .await;
        world.end(&clients, Menu::Permits).await
    })
}

fn schedules(test: &str, weather: Weather) -> Summary {
    let seen = SCENARIO.keeps_promises(test, weather);
    seen.has_counted("killed");
    seen.has_counted("confirmed");
    seen
}

#[test]
fn the_limit_is_kept_and_every_free_permit_is_taken() {
    let seen = schedules(
        "the_limit_is_kept_and_every_free_permit_is_taken",
        Weather::Calm,
    );
    seen.has_counted("cancelled");
}

/// The time counts from the last grant: while a permit of two stays free, the requests before one in line may each sleep until their
/// own poll, if a message is lost at every step.
#[test]
fn lost_wake_ups_cost_a_poll_and_no_more() {
    let seen = schedules("lost_wake_ups_cost_a_poll_and_no_more", Weather::Deaf);
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_bad_network_breaks_no_promise() {
    let seen = schedules("a_bad_network_breaks_no_promise", Weather::Flaky);
    seen.was_struck_by(Fault::Late);
}

#[test]
fn a_store_that_forgets_confirms_no_more_than_the_limit() {
    let seen = schedules(
        "a_store_that_forgets_confirms_no_more_than_the_limit",
        Weather::Hostile,
    );
    seen.met_everything();
}

#[test]
fn one_seed_is_one_history() {
    SCENARIO.is_determined_by_its_seed([Weather::Calm, Weather::Hostile]);
}

#[test]
fn every_flaw_is_found() {
    SCENARIO.finds_in_turn(&[
        (Flaw::OneMorePermit, "S1"),
        (Flaw::GrantsTwice, "S1"),
        (Flaw::ReleasesOthers, "S2"),
        (Flaw::Resurrects, "S3"),
        (Flaw::HoldsForEver, "S3"),
        (Flaw::HoldsForEver, "L2"),
        (Flaw::ShortLease, "S4"),
        (Flaw::Confirms, "S5"),
        (Flaw::Confirms, "S9"),
        (Flaw::KeepsAPart, "S8"),
        (Flaw::Sleepy, "L2"),
        (Flaw::HonoursTheDead, "L2"),
        (Flaw::Barges, "L3"),
        (Flaw::ForgetsWithdrawals, "L7"),
        (Flaw::KeepsListeners, "L8"),
    ]);
}
