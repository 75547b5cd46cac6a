//! What a dashboard and operators see of the table. It is read on demand, and nothing is kept for it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::key::Key;
use super::shared::Shared;
use super::{SHARDS, Table};
use crate::lock::{FencingToken, HoldId, Lease, LockKey, LockMode};
use crate::telemetry::Route;

/// One key that requests of this process hold or wait for.
#[derive(Debug, Clone)]
pub(crate) struct KeyView {
    pub(crate) key: LockKey,
    pub(crate) holds: Vec<HoldView>,
    /// The requests that wait.
    pub(crate) waiters: Vec<WaiterView>,
}

/// One hold of this process.
#[derive(Debug, Clone)]
pub(crate) struct HoldView {
    pub(crate) id: HoldId,
    pub(crate) mode: LockMode,
    /// The route of the present holder.
    pub(crate) route: Route,
    /// When the present holder got it.
    pub(crate) since: Instant,
    pub(crate) lease: Lease,
    pub(crate) deadline: Instant,
    /// The number of guards that share it.
    pub(crate) guards: usize,
    pub(crate) token: Option<FencingToken>,
    pub(crate) is_lost: bool,
}

/// One request that waits in this process.
#[derive(Debug, Clone)]
pub(crate) struct WaiterView {
    pub(crate) mode: LockMode,
    pub(crate) route: Route,
    pub(crate) since: Instant,
    /// Whether the store has been asked in its place.
    pub(crate) in_store: bool,
}

impl Table {
    /// The routes of the holds of this process by the number of the hold: the oldest ones, at most `limit`. Each key is read at a
    /// slightly different instant.
    pub(crate) fn routes(&self, limit: usize) -> BTreeMap<u64, &'static str> {
        let mut routes = BTreeMap::new();
        for shard in &self.shards {
            for shared in shard.state.lock().keys.values().flat_map(|key| key.holds()) {
                if let Some(route) = shared.route().template() {
                    routes.insert(shared.held.hold.id.number(), route);
                }
                // Numbers rise with the grants.
                if routes.len() > limit {
                    routes.pop_last();
                }
            }
        }
        routes
    }

    /// A page of the keys in use, in no particular order; `None`: there are no more pages.
    pub(crate) fn view(&self, page: usize) -> Option<Vec<KeyView>> {
        (page < SHARDS).then(|| {
            let state = self.shard(page);
            state
                .keys
                .iter()
                .map(|(key, state)| view(key, state))
                .collect()
        })
    }

    /// One key, with its name space; `None` if no request uses it.
    pub(crate) fn view_of(&self, key: &LockKey) -> Option<KeyView> {
        self.read(key, |state| view(key, state))
    }
}

fn view(key: &LockKey, state: &Key) -> KeyView {
    let waiters = state
        .waiters_with_places()
        .map(|(waiter, in_store)| WaiterView {
            mode: waiter.terms.mode,
            route: waiter.terms.route,
            since: waiter.since,
            in_store,
        });
    KeyView {
        key: key.clone(),
        holds: state.holds().map(hold).collect(),
        waiters: waiters.collect(),
    }
}

fn hold(shared: &Shared) -> HoldView {
    let held = &shared.held;
    HoldView {
        id: held.hold.id,
        mode: held.hold.mode,
        route: *shared.route(),
        since: shared.since(),
        lease: held.lease,
        deadline: held.deadline(),
        guards: shared.shares(),
        token: held.token(),
        is_lost: held.is_lost(Instant::now()),
    }
}
