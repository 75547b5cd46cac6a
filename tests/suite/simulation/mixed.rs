//! Locks in every mode, over one store.

use tower_distributed_lock_testing::Fault;

use super::history::History;
use super::plan::Menu;
use super::seeds::Scenario;
use super::weather::Weather;
use super::world::{Settings, World};
use crate::support::Flaw;

const SCENARIO: Scenario = Scenario {
    name: "mixed",
    schedules: 500,
    run,
};

const PROCESSES: usize = 2;

fn run(settings: Settings) -> History {
    History::of(settings.seed, async {
        let mut world = World::new(settings, 1, settings.weather.bound());
        let clients = world
            .processes(PROCESSES, (Flaw::None, Menu::All), None)
            .await;
        world.end(&clients, Menu::All).await
    })
}

#[test]
fn requests_to_a_distant_store_are_granted_and_never_overlap() {
    let seen = SCENARIO.keeps_promises(
        "requests_to_a_distant_store_are_granted_and_never_overlap",
        Weather::Calm,
    );
    seen.has_counted("confirmed");
}

#[test]
fn lost_wake_ups_cost_a_poll_and_no_more() {
    let seen = SCENARIO.keeps_promises("lost_wake_ups_cost_a_poll_and_no_more", Weather::Deaf);
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_bad_network_breaks_no_promise() {
    let seen = SCENARIO.keeps_promises("a_bad_network_breaks_no_promise", Weather::Flaky);
    seen.was_struck_by(Fault::Late);
}

#[test]
fn confirmed_holds_never_overlap_on_a_store_that_forgets() {
    let seen = SCENARIO.keeps_promises(
        "confirmed_holds_never_overlap_on_a_store_that_forgets",
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
        (Flaw::GrantsTwice, "S1"),
        (Flaw::ReleasesOthers, "S2"),
        (Flaw::Resurrects, "S3"),
        (Flaw::ShortLease, "S4"),
        (Flaw::Confirms, "S5"),
        (Flaw::Confirms, "S7"),
        (Flaw::Confirms, "S9"),
        (Flaw::RepeatsTokens, "S6"),
        (Flaw::KeepsAPart, "S8"),
        (Flaw::Sleepy, "L2"),
        (Flaw::ForgetsWithdrawals, "L7"),
        (Flaw::KeepsListeners, "L8"),
    ]);
}
