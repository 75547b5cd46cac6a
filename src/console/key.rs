//! One key in full.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::holders::{HolderCache, Who};
use super::millis;
use super::problem;
use super::shared::Shared;
use crate::admin::Inspection;
use crate::lock::{Lease, LockKey};
use crate::queue::HoldView;

/// How many holds and waiters of this process are shown.
const SHOWN: usize = 200;

/// `api/key`.
#[derive(Debug, Serialize)]
pub(super) struct KeyJson {
    key: LockKey,
    /// The holds of this process.
    holds: Vec<HoldJson>,
    /// The waiting requests of this process, in the order of their arrival.
    waiters: Vec<WaiterJson>,
    /// The number of waiting requests, which may be larger than the list.
    waiting: usize,
    /// The state of the key in the store.
    store: StoreSide,
}

#[derive(Debug, Serialize)]
struct HoldJson {
    id: String,
    state: &'static str,
    mode: &'static str,
    route: String,
    age_ms: u64,
    /// The time since the store granted it. The process may have handed it over since.
    granted_ms: u64,
    lease_ms: u64,
    lease_left_ms: u64,
    renewed: bool,
    renewals: u32,
    handovers: u32,
    shares: usize,
    token: Option<String>,
}

#[derive(Debug, Serialize)]
struct WaiterJson {
    mode: &'static str,
    route: String,
    waited_ms: u64,
    /// Whether it asks the store itself: the store has refused it, and will wake it. The other requests wait behind it in
    /// the process.
    asks_store: bool,
}

/// The state in the store, or why it is unknown.
#[derive(Debug, Default, Serialize)]
pub(super) struct StoreSide {
    holders: Vec<HolderJson>,
    waiters: Vec<String>,
    truncated: bool,
    /// The number of permits; `null` if it is no key of permits.
    limit: Option<u32>,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct HolderJson {
    #[serde(flatten)]
    who: Who,
    mode: &'static str,
    count: u64,
    /// `null`: for ever.
    lease_left_ms: Option<u64>,
}

/// Looks at `key`. Waits for the store for `patience` at most.
pub(super) async fn look(shared: &Shared, key: &LockKey, patience: Duration) -> KeyJson {
    let store = match timeout(patience, shared.holders.inspect(key)).await {
        Ok(Ok(inspection)) => StoreSide::of(&inspection, &shared.holders),
        Ok(Err(error)) => StoreSide::unknown(problem::text(&error)),
        Err(_) => StoreSide::unknown(format!("the store has not answered within {patience:?}")),
    };
    let inside = shared.locks.inside();
    let key = &inside.own(key);
    let (holds, queued) = inside.key(key);
    let now = Instant::now();
    let refused = inside.journal().store_waiters();
    let refused = refused.into_iter().filter(|waiter| waiter.key == *key);
    let refused = refused.map(|waiter| (waiter.since, waiter.mode, waiter.route, true));
    let queued = queued.into_iter();
    let queued = queued.map(|waiter| (waiter.since, waiter.mode, waiter.route, false));
    let mut waiters: Vec<_> = refused.chain(queued).collect();
    // Requests of one mode remain in the order of their queue.
    waiters.sort_by_key(|(since, ..)| *since);
    let waiting = waiters.len();
    let waiters = waiters.into_iter().take(SHOWN);
    let waiters = waiters.map(|(since, mode, route, asks_store)| WaiterJson {
        mode: mode.as_str(),
        route: route.as_str().to_owned(),
        waited_ms: millis::since(since, now),
        asks_store,
    });
    KeyJson {
        key: key.clone(),
        holds: holds
            .iter()
            .take(SHOWN)
            .map(|hold| HoldJson::new(hold, now))
            .collect(),
        waiters: waiters.collect(),
        waiting,
        store,
    }
}

impl HoldJson {
    fn new(hold: &HoldView, now: Instant) -> Self {
        Self {
            id: hold.id.to_string(),
            state: hold.state,
            mode: hold.mode.as_str(),
            route: hold.route.as_str().to_owned(),
            age_ms: millis::since(hold.since, now),
            granted_ms: millis::since(hold.granted, now),
            lease_ms: millis::of(hold.lease.duration()),
            lease_left_ms: millis::since(now, hold.deadline),
            renewed: matches!(hold.lease, Lease::Renewed(_)),
            renewals: hold.renewals,
            handovers: hold.handovers,
            shares: hold.shares,
            token: hold.token.map(|token| token.to_string()),
        }
    }
}

impl StoreSide {
    fn unknown(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }

    pub(super) fn of(inspection: &Inspection, holders: &HolderCache) -> Self {
        let held = inspection.holders.iter().map(|holder| HolderJson {
            who: holders.who(holder),
            mode: holder.mode.as_str(),
            count: holder.count,
            lease_left_ms: millis::left(holder.remaining),
        });
        Self {
            holders: held.collect(),
            waiters: inspection.waiters.clone(),
            truncated: inspection.truncated,
            limit: inspection.limit,
            error: None,
        }
    }
}
