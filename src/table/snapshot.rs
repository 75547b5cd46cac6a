//! What a dashboard and operators see of the table. It is read on demand, and nothing is kept for it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::span;

use super::key::Key;
use super::shared::Shared;
use super::{SHARDS, Table};
use crate::lock::{FencingToken, HoldId, Lease, LockKey, LockMode};

/// One key that requests of this process hold or wait for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeySnapshot {
    /// Its name.
    pub key: LockKey,
    /// The holds of this process in the store, the oldest first. Readers and permits may have several.
    pub holds: Vec<HoldSnapshot>,
    /// The requests that wait, in the order of their arrival.
    pub waiters: Vec<WaiterSnapshot>,
}

/// One hold of this process.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HoldSnapshot {
    /// Its id in the store.
    pub id: HoldId,
    /// The mode that was granted.
    pub mode: LockMode,
    /// The route of the present holder, or its [`label`](crate::LockRequest::label).
    pub route: Option<&'static str>,
    /// How long the present holder has had it.
    pub held: Duration,
    /// Its lease.
    pub lease: Lease,
    /// The rest of its lease, unless it is renewed.
    pub remaining: Duration,
    /// The number of guards that share it.
    pub guards: usize,
    /// Its token, if one was asked for.
    pub token: Option<FencingToken>,
    /// Whether it was lost. Its guards may not know yet.
    pub is_lost: bool,
}

/// One request that waits in this process.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaiterSnapshot {
    /// The mode that it asks for.
    pub mode: LockMode,
    /// The route of the request, or its [`label`](crate::LockRequest::label).
    pub route: Option<&'static str>,
    /// How long it has waited.
    pub waited: Duration,
    /// Whether it has a place in the store. The others of its process wait behind it.
    pub in_store: bool,
}

impl Table {
    /// The routes of the holds of this process by the number of the hold: the oldest ones, at most `limit`. Each key is read at a
    /// slightly different instant.
    pub(crate) fn routes(&self, limit: usize) -> BTreeMap<u64, &'static str> {
        let mut routes = BTreeMap::new();
        for shard in &self.shards {
            for shared in shard.state.lock().keys.values().flat_map(|key| key.holds()) {
                if let Some(route) = shared.holder().0.template() {
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

    /// The span of a guard of this process that holds the key.
    pub(crate) fn span_of(&self, name: &LockKey) -> Option<span::Id> {
        let span = |key: &Key| key.holds().find_map(|shared| shared.held.span());
        self.read(name, span).flatten()
    }

    /// A page of the keys in use, in no particular order; `None`: there are no more pages.
    pub(crate) fn snapshot(&self, page: usize, now: Instant) -> Option<Vec<KeySnapshot>> {
        (page < SHARDS).then(|| {
            let shard = self.shard(page);
            let keys = shard.keys.iter();
            keys.map(|(name, key)| key.snapshot(name, now)).collect()
        })
    }

    /// One key, with its name space; `None` if no request uses it.
    pub(crate) fn snapshot_of(&self, name: &LockKey, now: Instant) -> Option<KeySnapshot> {
        self.read(name, |key| key.snapshot(name, now))
    }
}

impl Key {
    fn snapshot(&self, name: &LockKey, now: Instant) -> KeySnapshot {
        let mut holds: Vec<_> = self.holds().collect();
        holds.sort_by_key(|shared| shared.holder().1);
        let mut waiters: Vec<_> = self.waiters_with_places().collect();
        // Requests of one mode remain in the order of their line.
        waiters.sort_by_key(|(waiter, _)| waiter.since);
        let waiters = waiters.into_iter();
        let waiters = waiters.map(|(waiter, in_store)| WaiterSnapshot {
            mode: waiter.terms.mode,
            route: waiter.terms.route.template(),
            waited: now.saturating_duration_since(waiter.since),
            in_store,
        });
        KeySnapshot {
            key: name.clone(),
            holds: holds
                .into_iter()
                .map(|shared| shared.snapshot(now))
                .collect(),
            waiters: waiters.collect(),
        }
    }
}

impl Shared {
    fn snapshot(&self, now: Instant) -> HoldSnapshot {
        let (held, (route, since)) = (&self.held, self.holder());
        HoldSnapshot {
            id: held.hold.id,
            mode: held.hold.mode,
            route: route.template(),
            held: now.saturating_duration_since(since),
            lease: held.lease,
            remaining: held.deadline().saturating_duration_since(now),
            guards: self.shares(),
            token: held.token(),
            is_lost: held.is_lost(now),
        }
    }
}
