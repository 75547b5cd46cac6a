//! What a console and operators see of the table. It is read on demand, and nothing is kept for it.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "console")]
use tokio::time::Instant;

#[cfg(feature = "console")]
use super::key::Key;
#[cfg(feature = "console")]
use super::line::{Side, Waiter};
#[cfg(feature = "console")]
use super::shared::Shared;
use super::Table;
#[cfg(feature = "console")]
use crate::lock::{FencingToken, HoldId, Lease, LockKey, LockMode};
#[cfg(feature = "console")]
use crate::telemetry::Route;

/// One key that requests of this process hold or wait for.
#[cfg(feature = "console")]
#[derive(Debug, Clone)]
pub(crate) struct KeyView {
    pub(crate) key: LockKey,
    /// The number of holds of this process in the store. Readers may have several.
    pub(crate) holds: usize,
    /// The oldest of them.
    pub(crate) hold: Option<HoldView>,
    /// The number of requests that wait in this process.
    pub(crate) waiters: usize,
    /// When the first of them arrived.
    pub(crate) first_waiter: Option<Instant>,
    /// The name of the mode that requests ask the store for, or wait in.
    pub(crate) wanted: Option<&'static str>,
}

/// One hold of this process.
#[cfg(feature = "console")]
#[derive(Debug, Clone)]
pub(crate) struct HoldView {
    pub(crate) id: HoldId,
    pub(crate) mode: LockMode,
    /// The route of the present holder.
    pub(crate) route: Route,
    /// When the present holder got it.
    pub(crate) since: Instant,
    /// When the store granted it.
    pub(crate) granted: Instant,
    pub(crate) lease: Lease,
    pub(crate) deadline: Instant,
    pub(crate) renewals: u32,
    /// The number of hand-overs inside the process.
    pub(crate) handovers: u32,
    /// The number of guards that share it.
    pub(crate) shares: usize,
    pub(crate) token: Option<FencingToken>,
    /// `held` or `lost`.
    pub(crate) state: &'static str,
}

/// One request that waits in this process.
#[cfg(feature = "console")]
#[derive(Debug, Clone)]
pub(crate) struct WaiterView {
    pub(crate) mode: LockMode,
    pub(crate) route: Route,
    pub(crate) since: Instant,
}

impl Table {
    /// The routes of the holds of this process by the number of the hold: the oldest ones, at most `limit`. Each key is read at a
    /// slightly different instant.
    pub(crate) fn routes(&self, limit: usize) -> BTreeMap<u64, Arc<str>> {
        let mut routes = BTreeMap::new();
        for shard in &self.shards {
            for shared in shard.state.lock().keys.values().flat_map(|key| key.holds()) {
                if let Some(route) = shared.route().template() {
                    routes.insert(shared.held.hold.id.number(), route.clone());
                }
                // Numbers rise with the grants.
                if routes.len() > limit {
                    routes.pop_last();
                }
            }
        }
        routes
    }

    /// Every key that is in use, in no particular order. Each is read at a slightly different instant.
    #[cfg(feature = "console")]
    pub(crate) fn view(&self) -> Vec<KeyView> {
        let mut keys = Vec::with_capacity(self.len());
        for shard in &self.shards {
            let state = shard.state.lock();
            keys.extend(state.keys.iter().map(|(key, state)| view(key, state)));
        }
        keys
    }

    /// The holds of one key, with its name space, and the requests that wait for it in this process, in the order of their arrival.
    #[cfg(feature = "console")]
    pub(crate) fn view_of(&self, key: &LockKey) -> (Vec<HoldView>, Vec<WaiterView>) {
        let seen = self.read(key, |state| {
            let mut waiters: Vec<_> = state.waiters().collect();
            waiters.sort_by_key(|waiter| waiter.ticket);
            let waiters = waiters.into_iter().map(WaiterView::from);
            (state.holds().map(hold).collect(), waiters.collect())
        });
        seen.unwrap_or_default()
    }
}

#[cfg(feature = "console")]
fn view(key: &LockKey, state: &Key) -> KeyView {
    let oldest = state.holds().min_by_key(|shared| shared.granted);
    KeyView {
        key: key.clone(),
        holds: state.holds().count(),
        hold: oldest.map(hold),
        waiters: state.waiters().count(),
        first_waiter: state.waiters().map(|waiter| waiter.since).min(),
        wanted: wanted(state),
    }
}

#[cfg(feature = "console")]
fn hold(shared: &Shared) -> HoldView {
    let held = &shared.held;
    HoldView {
        id: held.hold.id,
        mode: held.hold.mode,
        route: shared.route().clone(),
        since: shared.since(),
        granted: shared.granted,
        lease: held.lease,
        deadline: held.deadline(),
        renewals: held.renewals(),
        handovers: shared.handovers(),
        shares: shared.shares(),
        token: held.token(),
        state: if held.is_lost(Instant::now()) { "lost" } else { "held" },
    }
}

#[cfg(feature = "console")]
fn wanted(state: &Key) -> Option<&'static str> {
    let waits = state.waiters().next().map(|waiter| waiter.terms.mode.as_str());
    waits.or_else(|| {
        state.asks().map(|side| match side {
            Side::Exclusive => "exclusive",
            Side::Read => "read",
            Side::Fair => "fair",
        })
    })
}

#[cfg(feature = "console")]
impl From<&Waiter> for WaiterView {
    fn from(waiter: &Waiter) -> Self {
        Self {
            mode: waiter.terms.mode,
            route: waiter.terms.route.clone(),
            since: waiter.since,
        }
    }
}
