//! Permits: never more live holds than the limit, while processes fail, die and lose messages.

use std::time::Duration;

use tokio::time::sleep;
use tower_distributed_lock::LockClient;
use tower_distributed_lock::testing::Fault;

use super::flaw::Flaw;
use super::history::History;
use super::plan::{Menu, millis};
use super::seeds::{self, Summary};
use super::weather::Weather;
use super::world::{Genesis, World};

/// How many histories a test tries.
const SCHEDULES: u64 = 300;

const PROCESSES: usize = 3;

/// How long a free permit may remain untaken if a process has died: it may have been the first in line, and two questions
/// of the next may be under way.
const DEATH: Duration = super::line::DEATH;

fn run(seed: u64, weather: Weather, flaw: Flaw, traced: bool) -> History {
    History::of(seed, async {
        let mut fate = fastrand::Rng::with_seed(!seed);
        let death = fate.bool().then(|| millis(fate.u64(..4_000)));
        let delay = death.map_or(Duration::ZERO, |_| DEATH);
        let mut world = World::new(Genesis {
            seed,
            weather,
            flaw,
            traced,
            stores: 1,
            bound: weather.bound().map(|bound| bound + delay),
        });
        let ends = [(); PROCESSES].map(|()| world.told(world.stores[0].clone(), flaw));
        let mut clients = ends
            .each_ref()
            .map(|end| LockClient::new(end.clone()))
            .to_vec();
        let mut crowds = Vec::new();
        for locks in &clients {
            crowds.push(world.crowd(locks, Menu::Permits));
        }
        if let Some(when) = death {
            sleep(when).await;
            world.log.note(|| "process 0 dies".to_owned());
            if !crowds[0].is_empty() {
                world.log.count("killed");
            }
            ends[0].die();
            crowds.remove(0).shutdown().await;
            clients.remove(0);
        }
        for crowd in crowds {
            crowd.join_all().await;
        }
        world.end(&clients, Menu::Permits).await
    })
}

fn schedules(test: &str, weather: Weather) -> Summary {
    let seen = seeds::try_all(test, weather, SCHEDULES, |seed, traced| {
        run(seed, weather, Flaw::None, traced)
    });
    seen.has_counted("killed");
    seen.has_counted("confirmed");
    seen
}

#[test]
fn the_limit_is_kept_and_every_free_permit_is_taken() {
    let seen = schedules(
        "permits::the_limit_is_kept_and_every_free_permit_is_taken",
        Weather::Calm,
    );
    seen.has_counted("cancelled");
}

#[test]
fn lost_wake_ups_cost_a_poll_and_no_more() {
    let seen = schedules(
        "permits::lost_wake_ups_cost_a_poll_and_no_more",
        Weather::Deaf,
    );
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_bad_network_breaks_no_promise() {
    let seen = schedules("permits::a_bad_network_breaks_no_promise", Weather::Flaky);
    seen.was_struck_by(Fault::Late);
}

#[test]
fn a_store_that_forgets_confirms_no_more_than_the_limit() {
    let seen = schedules(
        "permits::a_store_that_forgets_confirms_no_more_than_the_limit",
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
        (Flaw::OneMorePermit, "S1"),
        (Flaw::GrantsTwice, "S1"),
        (Flaw::ReleasesOthers, "S2"),
        (Flaw::Resurrects, "S3"),
        (Flaw::KeepsExpiredPermits, "S3"),
        (Flaw::KeepsExpiredPermits, "L2"),
        (Flaw::ShortLease, "S4"),
        (Flaw::Confirms, "S5"),
        (Flaw::Confirms, "S9"),
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
