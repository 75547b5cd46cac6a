//! Requests for one of two keys, for any of them and for both: promises S1, S8, L2, L7, L8 inside a process.

use std::sync::{Arc, Mutex};

use shuttle::rand::{Rng, thread_rng};

use super::processes::{Explored, processes, run, unless_given_up, yields};
use super::store::Paced;
use crate::client::{LockClient, LockRequest};
use crate::guard::LockGuard;
use crate::lock::{LockMode, Owner};

const KEYS: [&str; 2] = ["stock:1", "stock:2"];

#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Each client stands for a process.
    clients: usize,
    /// How many tasks each client has. Each task makes several requests.
    callers: usize,
    modes: &'static [LockMode],
    /// Some requests are for both keys, not only for one or any.
    both: bool,
    /// Some requests are dropped while they wait.
    cancels: bool,
    /// Every caller is an owner that takes a part of its keys again.
    owners: bool,
}

const QUIET: Plan = Plan {
    clients: 1,
    callers: 4,
    modes: &[LockMode::Reentrant],
    both: false,
    cancels: false,
    owners: false,
};

/// The number of readers and of other holders at each key.
type Sites = [Mutex<(usize, usize)>; 2];

struct Crowd {
    plan: Plan,
    store: Paced,
    sites: Sites,
}

impl Explored for Plan {
    async fn run(self) {
        let crowd = Arc::new(Crowd {
            plan: self,
            store: Paced::default(),
            sites: Sites::default(),
        });
        crowd.run().await;
    }
}

impl Crowd {
    async fn run(self: Arc<Self>) {
        let clients = processes(self.plan.clients, &self.store);
        let call = |_, client| self.clone().call(client);
        run((&self.store, &clients), self.plan.callers, call).await;
        self.store.balances();
    }

    async fn call(self: Arc<Self>, client: LockClient) {
        for _ in 0..2 {
            let owner = Owner::new();
            let mode = self.plan.modes[thread_rng().gen_range(0..self.plan.modes.len())];
            let request = match thread_rng().gen_range(0..4) {
                0 => client.lock(KEYS[thread_rng().gen_range(0..2)]),
                1 if self.plan.both => client.lock_all(KEYS),
                _ => client.lock_any(KEYS),
            };
            let request = match self.plan.owners {
                true => request.owner(&owner),
                false => request,
            };
            let Some(guard) = self.ask(request.mode(mode)).await else {
                continue;
            };
            self.stay(&guard, 1).await;
            if self.plan.owners {
                let key = guard.key().clone();
                let again = client.lock_any([key]).mode(mode).owner(&owner);
                drop(again.await.expect("held already"));
                if !self.plan.both
                    && let Some(more) = self
                        .ask(client.lock_any(KEYS).mode(mode).owner(&owner))
                        .await
                {
                    assert_eq!(more.keys().count(), 1);
                    drop(more);
                }
            }
            yields(thread_rng().gen_range(0..3)).await;
            self.stay(&guard, 0).await;
            match thread_rng().gen_bool(0.3) {
                true => drop(guard),
                false => guard.release().await.expect("held all the time"),
            }
        }
    }

    async fn ask(&self, request: LockRequest) -> Option<LockGuard> {
        let granted = match self.plan.cancels && thread_rng().gen_bool(0.5) {
            true => unless_given_up(request.acquire()).await?,
            false => request.acquire().await,
        };
        Some(granted.unwrap())
    }

    /// Enters or leaves the guard's keys.
    async fn stay(&self, guard: &LockGuard, enters: usize) {
        for key in guard.keys() {
            let index = KEYS.iter().position(|one| *one == key.as_str());
            let mut site = self.sites[index.expect("one of them")].lock().unwrap();
            let (readers, others) = &mut *site;
            let here = match guard.mode() {
                LockMode::Read => &mut *readers,
                _ => &mut *others,
            };
            match enters {
                0 => *here -= 1,
                _ => *here += 1,
            }
            assert!(*others == 0 || *others == 1 && *readers == 0, "two at once");
        }
    }
}

#[test]
fn any_of_two_keys_is_granted_in_one_process() {
    QUIET.explore();
    let plan = Plan {
        cancels: true,
        ..QUIET
    };
    plan.explore();
}

#[test]
fn any_of_two_keys_is_granted_in_two_processes() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        cancels: true,
        modes: &[LockMode::Read, LockMode::Write],
        ..QUIET
    };
    plan.explore();
}

#[test]
fn both_of_two_keys_are_granted() {
    let plan = Plan {
        both: true,
        cancels: true,
        ..QUIET
    };
    plan.explore();
    let plan = Plan {
        clients: 2,
        callers: 2,
        ..plan
    };
    plan.explore();
    let plan = Plan {
        modes: &[LockMode::Read, LockMode::Write],
        owners: true,
        ..plan
    };
    plan.explore();
}

#[test]
fn any_of_two_keys_is_granted_to_owners_that_hold_one() {
    let plan = Plan {
        owners: true,
        callers: 3,
        cancels: true,
        ..QUIET
    };
    plan.explore();
    let plan = Plan {
        clients: 2,
        callers: 2,
        modes: &[LockMode::Read, LockMode::Write],
        ..plan
    };
    plan.explore();
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::Mutant;

    #[test]
    fn a_request_for_any_that_overlooks_its_grant_is_found() {
        QUIET.finds(Mutant::GiftUnseen);
    }

    #[test]
    fn a_request_for_any_that_keeps_unused_turns_is_found() {
        QUIET.finds(Mutant::TurnKept);
    }
}
