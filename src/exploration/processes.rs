//! Processes whose requests are explored: their clients, tasks and ends.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};

use super::explore;
use super::store::Paced;
#[cfg(mutants)]
use super::{Mutant, finds};
use crate::client::LockClient;
use crate::store::LockStore;

/// How many orders of events a test tries. The mutants are found within a hundred.
const ORDERS: usize = 500;

/// What determines a run, but for the order of its events.
pub(super) trait Explored: Copy + Send + Sync + 'static {
    /// One run, with its checks.
    fn run(self) -> impl Future<Output = ()>;

    /// Runs it in many orders of events.
    fn explore(self) {
        explore(ORDERS, move || block_on(self.run()));
    }

    /// Asserts that some order shows the mutant.
    #[cfg(mutants)]
    fn finds(self, mutant: Mutant) {
        finds(mutant, ORDERS, move || block_on(self.run()));
    }
}

/// So many processes that pass a hold on at most twice, after any time.
pub(super) fn processes(count: usize, store: &(impl LockStore + Clone)) -> Vec<LockClient> {
    let process = |_| {
        let builder = LockClient::builder(store.clone()).handovers(2);
        builder.handover_time(Duration::from_secs(3600)).build()
    };
    (0..count).map(process).collect()
}

/// Runs so many tasks of each process to their ends, and then waits until no key is in use, the store is empty, and no other task runs.
/// `task` gets the number of its process.
pub(super) async fn run<F: Future<Output = ()> + Send + 'static>(
    (store, processes): (&Paced, &[LockClient]),
    tasks: usize,
    task: impl Fn(usize, LockClient) -> F,
) {
    let mut under_way = Vec::new();
    for (n, client) in processes.iter().enumerate() {
        for _ in 0..tasks {
            under_way.push(spawn(task(n, client.clone())));
        }
    }
    for task in under_way {
        task.await.unwrap();
    }
    for client in processes {
        until("no key is in use", || client.keys_in_use() == 0).await;
    }
    until("the store is empty", || store.store.is_empty()).await;
    // One that is left would be dropped while another stands still under the mutex that its end needs.
    for client in processes {
        until("its tasks have ended", || !client.has_tasks()).await;
    }
}

/// The answer to a request; `None` if it comes after some steps of other tasks: then the request is dropped.
pub(super) async fn unless_given_up<F: Future>(asking: F) -> Option<F::Output> {
    let asking = pin!(asking);
    let steps = pin!(yields(thread_rng().gen_range(0..30)));
    match select(asking, steps).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right((_, _asking)) => {
            // Meanwhile the queue may give it something that it does not poll for any more.
            yields(thread_rng().gen_range(0..10)).await;
            None
        }
    }
}

pub(super) async fn yields(times: usize) {
    for _ in 0..times {
        yield_now().await;
    }
}

/// Polls for a condition that is not signalled.
pub(super) async fn until(what: &str, fact: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if fact() {
            return;
        }
        yield_now().await;
    }
    panic!("it never comes to pass: {what}");
}
