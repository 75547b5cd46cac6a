//! Requests that must be served once, over one store.

mod handler;
mod runs;
mod sender;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient};
use tower_distributed_lock_testing::Fault;

use super::history::History;
use super::plan::{Menu, millis};
use super::seeds::{Scenario, Summary};
use super::weather::Weather;
use super::world::{Settings, World};
use crate::support::Flaw;
use handler::Handler;
use runs::Runs;
use sender::{KEYS, Sender};

const SCENARIO: Scenario = Scenario {
    name: "idempotency",
    schedules: 250,
    run,
};

const PROCESSES: usize = 2;
const SENDERS: usize = 3;

/// Longer than a history, shorter than the wait at its end.
const RETENTION: Duration = Duration::from_secs(100);

fn run(settings: Settings) -> History {
    History::of(settings.seed, async {
        // Each grant is followed by a read of the record.
        let world = World::new(settings, 1, None);
        happen(world, settings).await
    })
}

async fn happen(mut world: World, settings: Settings) -> History {
    let Settings { weather, flaw, .. } = settings;
    let runs = Arc::new(Runs::new(
        world.log.clone(),
        world.checked_stores.clone(),
        weather.keeps_data(),
    ));
    let clients = [(); PROCESSES].map(|()| LockClient::new(world.stores[0].clone()));
    let senders = clients.each_ref().map(|locks| {
        let handler = Handler::new(runs.clone(), flaw, &mut world.random);
        let layer = layer(locks, &mut world.random);
        Sender::new(handler.behind(layer), runs.clone(), world.log.clone())
    });
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        for sender in &senders {
            sending.spawn(sender.clone().run(world.random.fork()));
        }
    }
    sending.join_all().await;
    world.calm_down().await;
    for key in KEYS {
        for sender in &senders {
            sender.repeat(key).await;
            // A replay may be answered before its lock is released.
            sleep(millis(10)).await;
        }
    }
    runs.close();
    world.end(&clients, Menu::All).await
}

fn layer(locks: &LockClient, random: &mut Rng) -> IdempotencyLayer {
    let leases = [Lease::Renewed(millis(400)), Lease::Fixed(millis(600))];
    IdempotencyLayer::new(locks.clone())
        .shared()
        .lease(leases[random.usize(..2)])
        .retention(RETENTION)
        .wait(millis([0, 500, 3_000][random.usize(..3)]))
}

fn schedules(test: &str, weather: Weather) -> Summary {
    let seen = SCENARIO.keeps_promises(test, weather);
    for what in ["served", "replayed", "reused", "in progress", "lost"] {
        seen.has_counted(what);
    }
    seen
}

#[test]
fn repeats_from_every_process_get_the_same_answer() {
    schedules(
        "repeats_from_every_process_get_the_same_answer",
        Weather::Calm,
    );
}

#[test]
fn over_a_bad_network_recorded_work_is_not_done_twice() {
    let seen = schedules(
        "over_a_bad_network_recorded_work_is_not_done_twice",
        Weather::Flaky,
    );
    seen.was_struck_by(Fault::ReplyLost);
}

#[test]
fn a_claim_that_is_forgotten_leaves_no_second_record() {
    let seen = schedules(
        "a_claim_that_is_forgotten_leaves_no_second_record",
        Weather::Hostile,
    );
    seen.was_struck_by(Fault::Vanished);
    // Work was done twice: otherwise the test proves nothing.
    seen.has_counted("in vain");
}

#[test]
fn one_seed_is_one_history() {
    SCENARIO.is_determined_by_its_seed([Weather::Calm, Weather::Hostile]);
}

#[test]
fn every_flaw_is_found() {
    let (calm, hostile) = (Weather::Calm, Weather::Hostile);
    SCENARIO.finds(&[
        (Flaw::ForgetsRecords, "S10", calm),
        (Flaw::LosesRecords, "S10", calm),
        (Flaw::GarblesRecords, "S10", calm),
        (Flaw::IgnoresBodies, "S10", calm),
        (Flaw::RecordsAlways, "S10", hostile),
        (Flaw::Confirms, "S9", hostile),
    ]);
}
