//! Locks in every mode, over one store.

use tower_distributed_lock::LockClient;
use tower_distributed_lock::testing::Fault;

use super::flaw::Flaw;
use super::history::History;
use super::plan::Menu;
use super::seeds::{self, Summary};
use super::weather::Weather;
use super::world::{Genesis, World};

/// How many histories a test tries.
const SCHEDULES: u64 = 500;

const PROCESSES: usize = 2;

fn run(seed: u64, weather: Weather, flaw: Flaw, traced: bool) -> History {
    History::of(seed, async {
        let mut world = World::new(Genesis {
            seed,
            weather,
            flaw,
            traced,
            stores: 1,
            bound: weather.bound(),
        });
        let clients = [(); PROCESSES].map(|()| {
            let store = world.stores[0].clone();
            LockClient::new(world.told(store, Flaw::None))
        });
        let crowds = clients
            .each_ref()
            .map(|locks| world.crowd(locks, Menu::All));
        for crowd in crowds {
            crowd.join_all().await;
        }
        world.end(&clients, Menu::All).await
    })
}

fn schedules(test: &str, weather: Weather) -> Summary {
    seeds::try_all(test, weather, SCHEDULES, |seed, traced| {
        run(seed, weather, Flaw::None, traced)
    })
}

#[test]
fn requests_to_a_distant_store_are_granted_and_never_overlap() {
    let seen = schedules(
        "mixed::requests_to_a_distant_store_are_granted_and_never_overlap",
        Weather::Calm,
    );
    seen.has_counted("confirmed");
}

#[test]
fn lost_wake_ups_cost_a_poll_and_no_more() {
    let seen = schedules(
        "mixed::lost_wake_ups_cost_a_poll_and_no_more",
        Weather::Deaf,
    );
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_bad_network_breaks_no_promise() {
    let seen = schedules("mixed::a_bad_network_breaks_no_promise", Weather::Flaky);
    seen.was_struck_by(Fault::Late);
}

#[test]
fn confirmed_holds_never_overlap_on_a_store_that_forgets() {
    let seen = schedules(
        "mixed::confirmed_holds_never_overlap_on_a_store_that_forgets",
        Weather::Hostile,
    );
    seen.met_everything();
}

#[test]
fn one_seed_is_one_history() {
    for weather in [Weather::Calm, Weather::Hostile] {
        seeds::replay(weather, |seed| run(seed, weather, Flaw::None, true));
    }
}

#[test]
fn every_flaw_is_found() {
    for (flaw, promise) in [
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
    ] {
        let weather = |seed| match seed % 2 {
            0 => Weather::Calm,
            _ => Weather::Hostile,
        };
        seeds::find(flaw, promise, |seed| run(seed, weather(seed), flaw, false));
    }
}
