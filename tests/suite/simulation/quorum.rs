//! A quorum of stores, each with faults of its own.

use tokio::time::sleep;
use tower_distributed_lock::LockClient;
use tower_distributed_lock_quorum::QuorumStore;
use tower_distributed_lock_testing::Fault;

use super::history::History;
use super::observed::Observed;
use super::plan::{Menu, millis};
use super::seeds::{Scenario, Summary};
use super::weather::Weather;
use super::world::{Settings, Store, World};
use crate::support::Flaw;

const SCENARIO: Scenario = Scenario {
    name: "quorum",
    schedules: 80,
    run,
};

const PROCESSES: usize = 2;
const STORES: usize = 5;

fn run(settings: Settings) -> History {
    History::of(settings.seed, async {
        // Votes may be split for a while.
        let mut world = World::new(settings, STORES, None);
        let clients = [(); PROCESSES].map(|()| {
            let quorum = quorum(&world.stores, settings.flaw);
            LockClient::new(world.observed(quorum, settings.flaw))
        });
        let outage = tokio::spawn(minority_is_away(world.stores.clone(), world.random.fork()));
        for crowd in world.crowds(&clients, Menu::Quorum) {
            crowd.join_all().await;
        }
        outage.abort();
        world.end(&clients, Menu::Quorum).await
    })
}

/// The connections of one process to all stores.
fn quorum(stores: &[Store], flaw: Flaw) -> QuorumStore<Observed<Store>> {
    let count = match flaw {
        Flaw::CountsTooFew => STORES - 2,
        _ => STORES,
    };
    let ends = stores[..count].iter();
    let quorum = QuorumStore::new(ends.map(|store| Observed::new(store.clone(), flaw)));
    quorum.expect("an odd number").store_timeout(millis(150))
}

/// From time to time, makes a minority of the stores unreachable.
async fn minority_is_away(stores: Vec<Store>, mut random: fastrand::Rng) {
    loop {
        sleep(millis(random.u64(..2_000))).await;
        let away = random.usize(..=STORES / 2);
        let away = random.choose_multiple(&stores, away);
        away.iter().for_each(|store| store.disconnect());
        sleep(millis(random.u64(..2_000))).await;
        away.iter().for_each(|store| store.reconnect());
    }
}

fn schedules(test: &str, weather: Weather) -> Summary {
    let seen = SCENARIO.keeps_promises(test, weather);
    seen.has_counted("confirmed");
    assert!(!seen.is_long || seen.tally.unreachable() > 0);
    seen
}

#[test]
fn a_minority_that_is_away_breaks_no_promise() {
    schedules("a_minority_that_is_away_breaks_no_promise", Weather::Calm);
}

#[test]
fn holds_never_overlap_with_bad_networks_to_every_store() {
    let seen = schedules(
        "holds_never_overlap_with_bad_networks_to_every_store",
        Weather::Flaky,
    );
    seen.was_struck_by(Fault::Late);
}

#[test]
fn confirmed_holds_never_overlap_on_stores_that_forget() {
    let seen = schedules(
        "confirmed_holds_never_overlap_on_stores_that_forget",
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
    let (calm, hostile) = (Weather::Calm, Weather::Hostile);
    SCENARIO.finds(&[
        (Flaw::CountsTooFew, "S9", calm),
        (Flaw::CountsTooFew, "S1", calm),
        (Flaw::TakesSilenceForYes, "S9", hostile),
        (Flaw::Vouches, "S9", hostile),
        (Flaw::Vouches, "S5", hostile),
        (Flaw::KeepsListeners, "L8", calm),
    ]);
}
