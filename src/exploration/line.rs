//! Processes in line: promises L2, L5, L7 across processes. Time stands still, so that a process that is not woken waits
//! for ever.

use std::time::Duration;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use uuid::Uuid;

use super::store::Paced;
use super::{explore, pass};
use crate::client::LockClient;
use crate::lock::{Hold, HoldId, Lease, LockMode};
use crate::store::{Attempt, Inspect, LockStore, WAITER_LIVENESS};

const ORDERS: usize = 300;

const KEY: &str = "account:42";

/// The longest sleep of a process that waits.
const POLL: Duration = Duration::from_secs(1);

/// Longer than all the time that passes here.
const LEASE: Duration = Duration::from_secs(3600);

async fn enter(client: LockClient, mode: LockMode) {
    let request = client.lock(KEY).mode(mode).lease(Lease::Fixed(LEASE));
    let guard = request.wait(LEASE).await.unwrap();
    guard.release().await.unwrap();
}

/// Modes of which each process takes any. Readers that wait for a writer go before the next one.
const CROWDS: [&[LockMode]; 3] = [
    &[LockMode::Reentrant],
    &[LockMode::Write],
    &[LockMode::Write, LockMode::Write, LockMode::Read],
];

/// Three processes want the lock, twice each. Some give up while they wait, or when they are woken.
fn crowd(modes: &'static [LockMode], cancels: bool) -> impl Fn() + Send + Sync {
    let any = move || modes[thread_rng().gen_range(0..modes.len())];
    move || {
        block_on(async move {
            let store = Paced::default();
            let mut processes = Vec::new();
            for _ in 0..3 {
                let client = LockClient::new(store.clone());
                processes.push(spawn(async move {
                    for _ in 0..2 {
                        if cancels && thread_rng().gen_bool(0.5) {
                            give_up(&client, any(), thread_rng().gen_range(0..30)).await;
                        }
                        enter(client.clone(), any()).await;
                    }
                }));
            }
            for process in processes {
                process.await.unwrap();
            }
        });
    }
}

/// Asks, and goes away after so many steps of others.
async fn give_up(client: &LockClient, mode: LockMode, steps: usize) {
    let asking = std::pin::pin!(enter(client.clone(), mode));
    let patience = std::pin::pin!(super::processes::yields(steps));
    futures_util::future::select(asking, patience).await;
}

/// A process dies while it is first in line.
fn a_death(mode: LockMode) -> impl Fn() + Send + Sync {
    move || {
        block_on(async move {
            let store = Paced::default();
            let holder = LockClient::new(store.clone());
            let request = holder.lock(KEY).mode(mode).lease(Lease::Fixed(LEASE));
            let guard = request.await.unwrap();
            let dead = Attempt::new(
                Hold {
                    key: KEY.into(),
                    mode,
                    id: HoldId::new(Uuid::from_u128(1), 1),
                },
                LEASE,
            );
            store.acquire(&dead.patience(LEASE)).await.unwrap();
            let next = LockClient::new(store.clone());
            let next = spawn(enter(next, mode));
            while waiting(&store).await != 2 {
                yield_now().await;
            }
            pass(WAITER_LIVENESS);
            // The living one asks again when its sleep is over.
            while !settles_at(&store, 1).await {
                pass(POLL);
            }
            guard.release().await.unwrap();
            next.await.unwrap();
        });
    }
}

/// How many wait.
async fn waiting(store: &Paced) -> usize {
    store
        .store
        .inspect(&KEY.into())
        .await
        .unwrap()
        .waiters
        .len()
}

/// Whether so many wait when others had the time for some steps.
async fn settles_at(store: &Paced, count: usize) -> bool {
    for _ in 0..100 {
        if waiting(store).await == count {
            return true;
        }
        yield_now().await;
    }
    false
}

#[test]
fn a_line_of_processes_is_served() {
    for modes in CROWDS {
        explore(ORDERS, crowd(modes, false));
    }
}

#[test]
fn a_line_of_processes_that_some_leave_is_served() {
    for modes in CROWDS {
        explore(ORDERS, crowd(modes, true));
    }
}

#[test]
fn a_line_behind_a_dead_process_is_served() {
    for mode in [LockMode::Reentrant, LockMode::Write] {
        explore(ORDERS, a_death(mode));
    }
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, finds};

    #[test]
    fn a_release_that_wakes_none_is_found() {
        for modes in CROWDS {
            finds(Mutant::WakesNone, ORDERS, crowd(modes, false));
        }
    }

    #[test]
    fn a_turn_that_is_lost_with_its_process_is_found() {
        for modes in CROWDS {
            finds(Mutant::LosesTheTurn, ORDERS, crowd(modes, true));
        }
    }

    #[test]
    fn a_release_that_wakes_a_dead_process_is_found() {
        for mode in [LockMode::Reentrant, LockMode::Write] {
            finds(Mutant::WakesTheDead, ORDERS, a_death(mode));
        }
    }
}
