//! Callers of one key: promises S1, S5, S6, L2, L3, L7, L8 inside a process.

#[cfg(mutants)]
mod mutants;
mod site;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join;
use shuttle::rand::{Rng, thread_rng};
use tokio::time::Instant;

use self::site::Site;
use super::pass;
use super::processes::{Explored, processes, run, unless_given_up, yields};
use super::store::Paced;
use crate::client::{LockClient, LockRequest};
use crate::guard::LockGuard;
use crate::lock::{Lease, LockMode, Owner};

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
    /// Owners make two requests at once, and others while they hold.
    owners: bool,
    /// Some holds vanish from the store.
    thefts: bool,
    /// Some holders take much of their lease, or longer, and no hold is renewed.
    naps: bool,
    /// The clients ask the memory store itself, which answers at once. Other tasks run at the mutexes of the clients only.
    at_once: bool,
}

const QUIET: Plan = Plan {
    clients: 1,
    callers: 4,
    modes: &[LockMode::Reentrant],
    cancels: false,
    owners: false,
    thefts: false,
    naps: false,
    at_once: false,
};

/// One run of a plan.
struct Crowd {
    plan: Plan,
    store: Paced,
    site: Mutex<Site>,
}

impl Explored for Plan {
    async fn run(self) {
        let crowd = Arc::new(Crowd {
            plan: self,
            store: Paced::default(),
            site: Mutex::default(),
        });
        crowd.run().await;
    }
}

impl Crowd {
    async fn run(self: Arc<Self>) {
        let clients = match self.plan.at_once {
            true => processes(self.plan.clients, &self.store.store),
            false => processes(self.plan.clients, &self.store),
        };
        let call = |n, client| self.clone().call(n, client);
        run((&self.store, &clients), self.plan.callers, call).await;
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
                if let Some((guard, queued)) = self.ask(n, request).await {
                    self.stay(n, (asked, queued), guard).await;
                }
            }
        }
    }

    /// The guard, and when the request was in the queue; `None` if it was dropped.
    async fn ask(&self, client: usize, request: LockRequest) -> Option<(LockGuard, u64)> {
        let mut asking = pin!(request.acquire());
        let first = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
        let queued = self.site.lock().unwrap().tick();
        let granted = match first {
            Poll::Ready(granted) => granted,
            Poll::Pending if self.plan.cancels && thread_rng().gen_bool(0.5) => {
                let answer = unless_given_up(asking).await;
                if answer.is_none() {
                    self.site.lock().unwrap().give_up(client);
                }
                answer?
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
        if released.is_ok() {
            self.site.lock().unwrap().confirm(visit);
        }
    }

    /// An owner that makes two requests at once, and while it holds, one more, and two during the release of that.
    async fn visit_twice(&self, client: usize, request: LockRequest, again: LockRequest) {
        let asked = self.site.lock().unwrap().tick();
        let (one, sibling) =
            join(self.ask(client, request.clone()), self.ask(client, request)).await;
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
        let inner = || self.ask(client, again.clone().mode(below));
        drop(inner().await);
        let (one, other) = join(inner(), inner()).await;
        // They end in any order.
        drop(sibling);
        self.stay(client, (asked, queued), guard).await;
        for (guard, _) in one.into_iter().chain(other) {
            guard.release().await.expect("held until now");
        }
    }
}

const READ_WRITE: &[LockMode] = &[LockMode::Read, LockMode::Write];

#[test]
fn a_line_of_one_process_is_served_in_order() {
    QUIET.explore();
}

#[test]
fn a_line_that_some_leave_is_served_in_order() {
    let plan = Plan {
        cancels: true,
        ..QUIET
    };
    plan.explore();
}

#[test]
fn readers_and_writers_of_one_process_exclude_each_other() {
    let plan = Plan {
        modes: READ_WRITE,
        cancels: true,
        ..QUIET
    };
    plan.explore();
}

#[test]
fn requests_of_two_processes_exclude_each_other() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        cancels: true,
        ..QUIET
    };
    plan.explore();
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
    plan.explore();
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
    plan.explore();
}

#[test]
fn owners_that_ask_again_are_granted() {
    let plan = Plan {
        callers: 3,
        owners: true,
        cancels: true,
        ..QUIET
    };
    plan.explore();
    let plan = Plan {
        modes: READ_WRITE,
        ..plan
    };
    plan.explore();
    let plan = Plan {
        clients: 2,
        callers: 2,
        ..plan
    };
    plan.explore();
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
    plan.explore();
    let plan = Plan {
        clients: 1,
        callers: 4,
        modes: READ_WRITE,
        ..plan
    };
    plan.explore();
}

#[test]
fn a_hold_that_is_nearly_over_is_not_passed_on() {
    let plan = Plan {
        naps: true,
        cancels: true,
        ..QUIET
    };
    plan.explore();
}

/// Requests that enter, ask and are granted in one step, and releases that no request of their process waits for.
#[test]
fn requests_to_a_store_that_answers_at_once_exclude_each_other() {
    let one = Plan {
        cancels: true,
        at_once: true,
        ..QUIET
    };
    let two = Plan {
        clients: 2,
        callers: 2,
        ..one
    };
    for plan in [one, two] {
        plan.explore();
        let plan = Plan {
            modes: READ_WRITE,
            ..plan
        };
        plan.explore();
    }
    let owners = Plan {
        callers: 3,
        owners: true,
        ..one
    };
    owners.explore();
    let owners = Plan {
        modes: READ_WRITE,
        ..owners
    };
    owners.explore();
    let naps = Plan { naps: true, ..one };
    naps.explore();
}
