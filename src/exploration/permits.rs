//! Permits: promises S1, L2, L5, L8 for a limited number of holders. Time stands still, so that a request that is not
//! woken waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use uuid::Uuid;

use super::processes::{run, until, yields};
use super::store::Paced;
use super::{explore, pass};
use crate::client::{LockClient, LockRequest};
use crate::guard::LockGuard;
use crate::lock::{Hold, HoldId, Lease, LockMode};
use crate::store::{Attempt, Inspect, LockStore};

const ORDERS: usize = 300;

const KEY: &str = "upstream";

const LIMIT: u32 = 2;

/// The longest sleep of a process that waits.
const POLL: Duration = Duration::from_secs(1);

/// Longer than all the time that passes here.
const LEASE: Duration = Duration::from_secs(3600);

fn permit(client: &LockClient) -> LockRequest {
    let request = client.lock(KEY).permits(LIMIT).wait(LEASE);
    request.lease(Lease::Fixed(LEASE))
}

async fn all_permits(client: &LockClient) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for _ in 0..LIMIT {
        guards.push(permit(client).await.unwrap());
    }
    guards
}

/// The number of holders now.
#[derive(Clone, Default)]
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Holds a permit for as long as `stay` runs.
    async fn visit(&self, client: &LockClient, stay: impl Future<Output = ()>) {
        let guard = permit(client).await.unwrap();
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= LIMIT as usize, "{now} hold a permit");
        stay.await;
        self.0.fetch_sub(1, Ordering::SeqCst);
        let drops = thread_rng().gen_bool(0.3);
        match drops {
            true => drop(guard),
            false => guard.release().await.unwrap(),
        }
    }
}

/// The requests of several processes, twice each. Some give up while they wait, or when they are woken.
fn crowd(clients: usize, callers: usize, cancels: bool) -> impl Fn() + Send + Sync {
    move || {
        block_on(async move {
            let (store, inside) = (Paced::default(), Inside::default());
            let process = |_| LockClient::new(store.clone());
            let processes: Vec<_> = (0..clients).map(process).collect();
            let call = |_, client| call(client, inside.clone(), cancels);
            run((&store, &processes), callers, call).await;
            store.balances();
        });
    }
}

async fn call(client: LockClient, inside: Inside, cancels: bool) {
    for _ in 0..2 {
        if cancels && thread_rng().gen_bool(0.5) {
            let asking = std::pin::pin!(permit(&client).acquire());
            let patience = std::pin::pin!(yields(thread_rng().gen_range(0..30)));
            futures_util::future::select(asking, patience).await;
        }
        inside
            .visit(&client, yields(thread_rng().gen_range(0..3)))
            .await;
    }
}

/// The ids that wait in the store.
async fn waiting(store: &Paced) -> usize {
    let seen = store.store.inspect(&KEY.into()).await.unwrap();
    seen.waiters.len()
}

/// Returns when no request has asked the store for a while.
async fn settle(store: &Paced) {
    let mut asked = store.asked();
    let mut quiet = 0;
    while quiet < 100 {
        yield_now().await;
        quiet = if store.asked() == asked { quiet + 1 } else { 0 };
        asked = store.asked();
    }
}

/// So many processes that wait for a permit, and hold it until `leave` is true.
async fn line(
    store: &Paced,
    inside: &Inside,
    count: usize,
    leave: impl Fn(&Inside) -> bool + Clone + Send + Sync + 'static,
) -> Vec<JoinHandle<()>> {
    let mut line = Vec::new();
    for _ in 0..count {
        let (client, inside) = (LockClient::new(store.clone()), inside.clone());
        let leave = leave.clone();
        line.push(spawn(async move {
            let stay = until("it may leave", || leave(&inside));
            inside.visit(&client, stay).await;
        }));
    }
    while waiting(store).await != count {
        yield_now().await;
    }
    settle(store).await;
    line
}

/// All permits come free at once: as many processes as there are permits hold them side by side.
fn all_come_free() -> impl Fn() + Send + Sync {
    || {
        block_on(async {
            let (store, inside) = (Paced::default(), Inside::default());
            let guards = all_permits(&LockClient::new(store.clone())).await;
            let full = Arc::new(AtomicUsize::new(0));
            let leave = {
                let full = full.clone();
                move |inside: &Inside| {
                    full.fetch_max(inside.count(), Ordering::SeqCst) == LIMIT as usize
                }
            };
            let line = line(&store, &inside, 3, leave).await;
            let releases = guards.into_iter().map(LockGuard::release);
            for released in futures_util::future::join_all(releases).await {
                released.unwrap();
            }
            for process in line {
                process.await.unwrap();
            }
        });
    }
}

/// One permit comes free: one process asks for it.
fn one_comes_free() -> impl Fn() + Send + Sync {
    || {
        block_on(async {
            let (store, inside) = (Paced::default(), Inside::default());
            let mut guards = all_permits(&LockClient::new(store.clone())).await;
            let over = Arc::new(AtomicUsize::new(0));
            let leave = {
                let over = over.clone();
                move |_: &Inside| over.load(Ordering::SeqCst) > 0
            };
            let line = line(&store, &inside, 4, leave).await;
            let before = store.asked();
            guards.pop().unwrap().release().await.unwrap();
            while inside.count() == 0 {
                yield_now().await;
            }
            settle(&store).await;
            assert_eq!(store.asked() - before, 1, "for one permit");
            assert_eq!((inside.count(), waiting(&store).await), (1, 3));
            over.store(1, Ordering::SeqCst);
            for process in line {
                process.await.unwrap();
            }
        });
    }
}

/// The requests of one process wait: no more of them than there are permits ask the store, and one has a place.
fn many_of_one_process() -> impl Fn() + Send + Sync {
    || {
        block_on(async {
            let (store, inside) = (Paced::default(), Inside::default());
            let guards = all_permits(&LockClient::new(store.clone())).await;
            let client = LockClient::new(store.clone());
            let before = store.asked();
            let requests: Vec<_> = (0..6)
                .map(|_| spawn(call(client.clone(), inside.clone(), false)))
                .collect();
            while waiting(&store).await == 0 {
                yield_now().await;
            }
            settle(&store).await;
            let asked = store.asked() - before;
            // The one that has a place asks again when it listens, and when another gives its place up.
            assert!(asked <= LIMIT as usize + 2, "{asked} questions");
            assert_eq!(waiting(&store).await, 1);
            drop(guards);
            for request in requests {
                request.await.unwrap();
            }
        });
    }
}

/// Another process has one of two permits. Of the requests that ask for the other one, one is refused, behind which a third waits: they
/// have a place when that permit comes free.
fn one_of_two_is_refused() -> impl Fn() + Send + Sync {
    || {
        block_on(async {
            let (store, inside) = (Paced::default(), Inside::default());
            let guard = permit(&LockClient::new(store.clone())).await.unwrap();
            let client = LockClient::new(store.clone());
            let full = Arc::new(AtomicUsize::new(0));
            let visits = (0..3).map(|_| {
                let (client, inside, full) = (client.clone(), inside.clone(), full.clone());
                spawn(async move {
                    let is_full =
                        || full.fetch_max(inside.count(), Ordering::SeqCst) == LIMIT as usize;
                    let stay = until("both permits are used", is_full);
                    inside.visit(&client, stay).await;
                })
            });
            let visits: Vec<_> = visits.collect();
            while inside.count() == 0 {
                yield_now().await;
            }
            settle(&store).await;
            guard.release().await.unwrap();
            for visit in visits {
                visit.await.unwrap();
            }
        });
    }
}

/// A process dies with every permit.
fn a_death() -> impl Fn() + Send + Sync {
    || {
        block_on(async {
            let (store, inside) = (Paced::default(), Inside::default());
            let lease = Duration::from_secs(30);
            for number in 0..u64::from(LIMIT) {
                let hold = Hold {
                    key: KEY.into(),
                    mode: LockMode::permits(LIMIT),
                    id: HoldId::new(Uuid::from_u128(1), number),
                };
                store.acquire(&Attempt::new(hold, lease)).await.unwrap();
            }
            let line = line(&store, &inside, 2, |_| true).await;
            assert_eq!(inside.count(), 0);
            pass(lease);
            // The living ask again when their sleep is over.
            for _ in 0..3 {
                pass(POLL);
                settle(&store).await;
            }
            assert_eq!(waiting(&store).await, 0, "a dead process keeps its permits");
            for process in line {
                process.await.unwrap();
            }
        });
    }
}

#[test]
fn requests_of_one_process_keep_the_limit() {
    explore(ORDERS, crowd(1, 5, false));
    explore(ORDERS, crowd(1, 5, true));
}

#[test]
fn requests_of_three_processes_keep_the_limit() {
    explore(ORDERS, crowd(3, 2, false));
    explore(ORDERS, crowd(3, 2, true));
}

#[test]
fn permits_that_come_free_together_are_all_granted() {
    explore(ORDERS, all_come_free());
}

#[test]
fn a_permit_that_comes_free_alone_wakes_one_process() {
    explore(ORDERS, one_comes_free());
}

#[test]
fn no_more_requests_of_a_process_ask_than_there_are_permits() {
    explore(ORDERS, many_of_one_process());
}

#[test]
fn a_refused_request_passes_the_turn_on() {
    explore(ORDERS, one_of_two_is_refused());
}

#[test]
fn permits_of_a_dead_process_come_free() {
    explore(ORDERS, a_death());
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, finds};

    #[test]
    fn one_permit_more_than_the_limit_is_found() {
        finds(Mutant::OnePermitMore, ORDERS, crowd(3, 2, false));
    }

    #[test]
    fn a_second_permit_that_wakes_no_process_is_found() {
        finds(Mutant::NextPermitForgotten, ORDERS, all_come_free());
    }

    #[test]
    fn a_permit_that_wakes_every_process_is_found() {
        finds(Mutant::WakesAll, ORDERS, one_comes_free());
    }

    #[test]
    fn an_expired_permit_that_still_counts_is_found() {
        finds(Mutant::ExpiredPermitCounts, ORDERS, a_death());
    }

    #[test]
    fn a_crowd_of_one_process_that_asks_for_one_permit_is_found() {
        finds(Mutant::HerdAsks, ORDERS, many_of_one_process());
    }

    #[test]
    fn a_request_that_is_answered_and_keeps_the_turn_is_found() {
        finds(Mutant::PermitTurnKept, ORDERS, one_of_two_is_refused());
    }

    #[test]
    fn a_request_that_gives_up_and_keeps_its_question_is_found() {
        finds(Mutant::TurnKept, ORDERS, crowd(1, 5, true));
    }

    #[test]
    fn a_release_that_wakes_no_process_is_found() {
        finds(Mutant::WakesNone, ORDERS, crowd(3, 2, false));
    }

    #[test]
    fn a_process_that_gives_up_and_wakes_no_other_is_found() {
        finds(Mutant::LosesTheTurn, ORDERS, crowd(3, 2, true));
    }
}
