//! The order of fair queues, while waiters leave and processes die.

use std::time::Duration;

use tokio::time::sleep;
use tower_distributed_lock::LockClient;
use tower_distributed_lock::testing::Fault;

use super::flaw::Flaw;
use super::history::History;
use super::line::DEATH;
use super::plan::{Menu, millis};
use super::seeds::{self, Summary};
use super::weather::{POLL, Weather};
use super::world::{Genesis, World};

/// How many histories a test tries.
const SCHEDULES: u64 = 300;

const PROCESSES: usize = 3;

/// How long a free lock may remain untaken while a request waits, where requests fail. A failed request may keep its place
/// as long as a dead one, and the next in the queue may be cut off for a second, and try twice.
const FAILURE: Duration = DEATH
    .saturating_add(Duration::from_millis(1_000 + 300))
    .saturating_add(POLL);

/// A process that dies, and the time of its death.
type Death = (usize, Duration);

fn run(seed: u64, weather: Weather, flaw: Flaw, traced: bool) -> History {
    History::of(seed, async {
        let mut fate = fastrand::Rng::with_seed(!seed);
        let death = fate
            .bool()
            .then(|| (fate.usize(..PROCESSES), millis(fate.u64(..4_000))));
        let delay = death.map_or(Duration::ZERO, |_| DEATH);
        let world = World::new(Genesis {
            seed,
            weather,
            flaw,
            traced,
            stores: 1,
            bound: Some(weather.bound().unwrap_or(FAILURE) + delay),
        });
        happen(world, flaw, death).await
    })
}

async fn happen(mut world: World, flaw: Flaw, death: Option<Death>) -> History {
    let ends = [(); PROCESSES].map(|()| world.told(world.stores[0].clone(), flaw));
    let mut clients = ends
        .each_ref()
        .map(|end| LockClient::new(end.clone()))
        .to_vec();
    let mut crowds = Vec::new();
    for locks in &clients {
        crowds.push(world.crowd(locks, Menu::Fair));
    }
    if let Some((process, when)) = death {
        sleep(when).await;
        world.log.note(|| format!("process {process} dies"));
        if !crowds[process].is_empty() {
            world.log.count("killed");
        }
        ends[process].die();
        crowds.remove(process).shutdown().await;
        clients.remove(process);
    }
    for crowd in crowds {
        crowd.join_all().await;
    }
    world.end(&clients, Menu::Fair).await
}

fn schedules(test: &str, weather: Weather) -> Summary {
    let seen = seeds::try_all(test, weather, SCHEDULES, |seed, traced| {
        run(seed, weather, Flaw::None, traced)
    });
    seen.has_counted("killed");
    seen
}

#[test]
fn waiters_are_granted_in_order_and_a_dead_one_costs_seconds() {
    let seen = schedules(
        "fairness::waiters_are_granted_in_order_and_a_dead_one_costs_seconds",
        Weather::Calm,
    );
    seen.has_counted("cancelled");
}

#[test]
fn a_waiter_that_is_not_woken_keeps_its_place() {
    let seen = schedules(
        "fairness::a_waiter_that_is_not_woken_keeps_its_place",
        Weather::Deaf,
    );
    seen.was_struck_by(Fault::WakeupLost);
}

#[test]
fn a_request_that_fails_loses_its_own_place_and_no_other() {
    let seen = schedules(
        "fairness::a_request_that_fails_loses_its_own_place_and_no_other",
        Weather::Flaky,
    );
    seen.was_struck_by(Fault::Late);
}

#[test]
fn one_seed_is_one_history() {
    for weather in [Weather::Calm, Weather::Flaky] {
        seeds::replay(weather, |seed| run(seed, weather, Flaw::None, true));
    }
}

#[test]
fn every_flaw_is_found() {
    for (flaw, promise) in [
        (Flaw::Barges, "L3"),
        (Flaw::Silent, "L3"),
        (Flaw::HonoursTheDead, "L5"),
        (Flaw::HonoursTheDead, "L2"),
        (Flaw::Sleepy, "L5"),
    ] {
        let weather = Weather::Calm;
        seeds::find(flaw, promise, |seed| run(seed, weather, flaw, false));
    }
}
