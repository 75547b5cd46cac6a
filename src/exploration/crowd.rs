//! Callers of one key: GUARANTEES S1, S5, S6, L2, L3, L7, L8 inside a process.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tokio::time::Instant;

use super::store::Paced;
use super::{Mutant, explore, finds, pass};
use crate::client::{LockClient, LockRequest};
use crate::guard::LockGuard;
use crate::lock::{Lease, LockMode, Owner};

/// How many orders of events a test tries. The mutants below are found within a hundred.
const ORDERS: usize = 500;

const KEY: &str = "account:42";
const LEASE: Duration = Duration::from_millis(300);

/// The callers of a run, and the events that affect them.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Each client stands for a process.
    clients: usize,
    /// How many tasks each client has. Each task makes several requests.
    callers: usize,
    modes: &'static [LockMode],
    /// Some requests are dropped while they wait.
    cancels: bool,
    /// Owners make two requests at once, and another one while they hold.
    owners: bool,
    /// Some holds vanish from the store.
    thefts: bool,
    /// Some holders take much of their lease, or longer, and no hold is renewed.
    naps: bool,
}

const QUIET: Plan = Plan {
    clients: 1,
    callers: 4,
    modes: &[LockMode::Reentrant],
    cancels: false,
    owners: false,
    thefts: false,
    naps: false,
};

/// The place that the lock protects, and the record of all visits.
#[derive(Default)]
struct Site {
    now: u64,
    here: Vec<usize>,
    visits: Vec<Visit>,
    last_token: u64,
}

#[derive(Debug, Clone)]
struct Visit {
    client: usize,
    mode: LockMode,
    /// A time before the request, and a time at which it was certainly in the queue.
    asked: (u64, u64),
    came: u64,
    went: u64,
    /// The release said that the lock was held until then.
    confirmed: bool,
}

impl Site {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn come(&mut self, plan: Plan, client: usize, asked: (u64, u64), guard: &LockGuard) -> usize {
        let came = self.tick();
        let mode = guard.mode();
        if let Some(token) = guard.fencing_token() {
            // After a theft, the resource refuses tokens that are older than the latest it has seen.
            let rises = token.value() > self.last_token;
            assert!(rises || plan.thefts, "a token did not rise");
            self.last_token = token.value();
        }
        let crowded = self
            .here
            .iter()
            .any(|&other| mode != LockMode::Read || self.visits[other].mode != LockMode::Read);
        assert!(!crowded || plan.thefts || plan.naps, "two at once");
        self.visits.push(Visit {
            client,
            mode,
            asked,
            came,
            went: u64::MAX,
            confirmed: false,
        });
        self.here.push(self.visits.len() - 1);
        self.visits.len() - 1
    }

    fn go(&mut self, visit: usize) {
        self.visits[visit].went = self.tick();
        self.here.retain(|&other| other != visit);
    }

    /// The checks after the last visit.
    fn review(&self, plan: Plan) {
        for (n, one) in self.visits.iter().enumerate() {
            for other in &self.visits[n + 1..] {
                let apart = one.went < other.came || other.went < one.came;
                let shared = one.mode == LockMode::Read && other.mode == LockMode::Read;
                let both = one.confirmed && other.confirmed;
                assert!(
                    apart || shared || !both,
                    "confirmed overlap: {one:?} {other:?}"
                );
                // First in the queue, first granted. This is not checked between clients, where the store has the
                // queue, or where requests enter together.
                let in_line = one.client == other.client
                    && one.mode == other.mode
                    && matches!(one.mode, LockMode::Reentrant | LockMode::Write);
                let overtook = other.asked.1 < one.asked.0;
                // A granted hold may vanish before its task runs: the queue then continues without it.
                let vanished = plan.thefts && !other.confirmed;
                assert!(
                    plan.owners || !in_line || !overtook || vanished,
                    "overtaken: {one:?} {other:?}"
                );
            }
        }
    }
}

/// One run of a plan.
struct Crowd {
    plan: Plan,
    store: Paced,
    site: Mutex<Site>,
}

fn scenario(plan: Plan) -> impl Fn() + Send + Sync {
    move || {
        let crowd = Arc::new(Crowd {
            plan,
            store: Paced::default(),
            site: Mutex::default(),
        });
        block_on(crowd.run());
    }
}

impl Crowd {
    async fn run(self: Arc<Self>) {
        let mut callers = Vec::new();
        let mut clients = Vec::new();
        for n in 0..self.plan.clients {
            let client = LockClient::builder(self.store.clone())
                .handovers(2)
                .handover_time(Duration::from_secs(3600))
                .build();
            for _ in 0..self.plan.callers {
                callers.push(spawn(self.clone().call(n, client.clone())));
            }
            clients.push(client);
        }
        for caller in callers {
            caller.await.unwrap();
        }
        for client in &clients {
            until("no key is in use", || client.keys_in_use() == 0).await;
        }
        until("the store is empty", || self.store.store.is_empty()).await;
        if !self.plan.naps {
            self.store.balances();
        }
        self.site.lock().unwrap().review(self.plan);
    }

    async fn call(self: Arc<Self>, n: usize, client: LockClient) {
        for _ in 0..2 {
            let modes = self.plan.modes;
            let mode = modes[thread_rng().gen_range(0..modes.len())];
            let mut request = client.lock(KEY).mode(mode).lease(Lease::Renewed(LEASE));
            if mode.is_exclusive() {
                request = request.fenced();
            }
            if self.plan.owners {
                let owner = Owner::new();
                request = request.owner(&owner);
                let again = client.lock(KEY).owner(&owner);
                self.visit_twice(n, request, again.lease(Lease::Renewed(LEASE)))
                    .await;
            } else {
                let asked = self.site.lock().unwrap().tick();
                if let Some((guard, queued)) = self.ask(request).await {
                    self.stay(n, (asked, queued), guard).await;
                }
            }
        }
    }

    /// The guard, and when the request was in the queue; `None` if it was dropped.
    async fn ask(&self, request: LockRequest) -> Option<(LockGuard, u64)> {
        let mut asking = pin!(request.acquire());
        let first = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
        let queued = self.site.lock().unwrap().tick();
        let granted = match first {
            Poll::Ready(granted) => granted,
            Poll::Pending if self.plan.cancels && thread_rng().gen_bool(0.5) => {
                let patience = pin!(yields(thread_rng().gen_range(0..30)));
                match select(asking, patience).await {
                    Either::Left((granted, _)) => granted,
                    Either::Right((_, _asking)) => {
                        // Meanwhile the queue may give it something that it does not poll for any more.
                        yields(thread_rng().gen_range(0..10)).await;
                        return None;
                    }
                }
            }
            Poll::Pending => asking.await,
        };
        Some((granted.unwrap(), queued))
    }

    async fn stay(&self, client: usize, asked: (u64, u64), guard: LockGuard) {
        let plan = self.plan;
        if plan.naps {
            let left = guard.deadline().saturating_duration_since(Instant::now());
            assert!(left > LEASE / 4, "given what is nearly over: {left:?}");
        }
        let visit = self.site.lock().unwrap().come(plan, client, asked, &guard);
        yields(thread_rng().gen_range(0..3)).await;
        if plan.thefts && thread_rng().gen_bool(0.3) {
            self.store.steal_all(KEY).await;
        }
        if plan.naps {
            pass(LEASE * thread_rng().gen_range(0..12) / 10);
        }
        self.site.lock().unwrap().go(visit);
        if thread_rng().gen_bool(0.3) {
            return drop(guard);
        }
        let released = guard.release().await;
        assert!(released.is_ok() || plan.thefts || plan.naps, "{released:?}");
        self.site.lock().unwrap().visits[visit].confirmed = released.is_ok();
    }

    /// An owner that makes two requests at once, and a third while it holds.
    async fn visit_twice(&self, client: usize, request: LockRequest, again: LockRequest) {
        let asked = self.site.lock().unwrap().tick();
        let (one, sibling) = join(self.ask(request.clone()), self.ask(request)).await;
        let (guard, queued, sibling) = match (one, sibling) {
            (Some((guard, queued)), other) | (other, Some((guard, queued))) => {
                (guard, queued, other)
            }
            (None, None) => return,
        };
        let below = match guard.mode() {
            LockMode::Write if thread_rng().gen_bool(0.5) => LockMode::Read,
            mode => mode,
        };
        // Dropped in any order.
        let third = self.ask(again.mode(below)).await;
        drop(sibling);
        self.stay(client, (asked, queued), guard).await;
        drop(third);
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

const READ_WRITE: &[LockMode] = &[LockMode::Read, LockMode::Write];

#[test]
fn a_line_of_one_process_is_served_in_order() {
    explore(ORDERS, scenario(QUIET));
}

#[test]
fn a_line_that_some_leave_is_served_in_order() {
    explore(
        ORDERS,
        scenario(Plan {
            cancels: true,
            ..QUIET
        }),
    );
}

#[test]
fn readers_and_writers_of_one_process_exclude_each_other() {
    let plan = Plan {
        modes: READ_WRITE,
        cancels: true,
        ..QUIET
    };
    explore(ORDERS, scenario(plan));
}

#[test]
fn requests_of_two_processes_exclude_each_other() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        cancels: true,
        ..QUIET
    };
    explore(ORDERS, scenario(plan));
}

#[test]
fn readers_and_writers_of_two_processes_exclude_each_other() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        modes: READ_WRITE,
        cancels: true,
        ..QUIET
    };
    explore(ORDERS, scenario(plan));
}

#[test]
fn fair_requests_of_two_processes_exclude_each_other() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        modes: &[LockMode::Fair],
        cancels: true,
        ..QUIET
    };
    explore(ORDERS, scenario(plan));
}

#[test]
fn owners_that_ask_again_are_granted() {
    let plan = Plan {
        callers: 3,
        owners: true,
        cancels: true,
        ..QUIET
    };
    explore(ORDERS, scenario(plan));
    explore(
        ORDERS,
        scenario(Plan {
            modes: READ_WRITE,
            ..plan
        }),
    );
}

#[test]
fn confirmed_holds_never_overlap_when_holds_vanish() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        thefts: true,
        cancels: true,
        ..QUIET
    };
    explore(ORDERS, scenario(plan));
    explore(
        ORDERS,
        scenario(Plan {
            clients: 1,
            callers: 4,
            modes: READ_WRITE,
            ..plan
        }),
    );
}

#[test]
fn a_hold_that_is_nearly_over_is_not_passed_on() {
    explore(
        ORDERS,
        scenario(Plan {
            naps: true,
            cancels: true,
            ..QUIET
        }),
    );
}

mod mutants {
    use super::*;

    #[test]
    fn a_cancelled_waiter_that_keeps_its_grant_is_found() {
        finds(
            Mutant::GiftKept,
            ORDERS,
            scenario(Plan {
                cancels: true,
                ..QUIET
            }),
        );
    }

    #[test]
    fn a_request_that_gives_up_and_keeps_its_turn_is_found() {
        let plan = Plan {
            clients: 2,
            callers: 2,
            cancels: true,
            ..QUIET
        };
        finds(Mutant::TurnKept, ORDERS, scenario(plan));
    }

    #[test]
    fn a_hold_that_is_passed_on_when_nearly_over_is_found() {
        let plan = Plan {
            naps: true,
            ..QUIET
        };
        finds(Mutant::LostPassedOn, ORDERS, scenario(plan));
    }

    #[test]
    fn a_newcomer_at_the_front_of_the_queue_is_found() {
        finds(Mutant::LastInFirstOut, ORDERS, scenario(QUIET));
    }

    #[test]
    fn a_token_that_is_given_twice_is_found() {
        finds(Mutant::TokenKept, ORDERS, scenario(QUIET));
    }

    #[test]
    fn a_forgotten_request_of_an_owner_is_found() {
        let plan = Plan {
            callers: 3,
            owners: true,
            ..QUIET
        };
        finds(Mutant::SiblingForgotten, ORDERS, scenario(plan));
    }
}
