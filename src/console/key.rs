//! One key in full.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::holders::Holders;
use super::millis;
use super::problem;
use super::row::held_here;
use super::shared::Shared;
use crate::lock::LockKey;
use crate::store::Inspection;

/// How many holds and waiters of this process are shown.
const SHOWN: usize = 200;

/// `api/key`: the state of `key` here and in the store. Waits for the store for `limit` at most.
pub(super) async fn look(shared: &Shared, key: &LockKey, limit: Duration) -> Value {
    let store = match timeout(limit, shared.holders.inspect(key)).await {
        Ok(Ok(inspection)) => in_store(&inspection, &shared.holders),
        Ok(Err(error)) => unknown(problem::text(&error)),
        Err(_) => unknown(format!("the store has not answered within {limit:?}")),
    };
    let locks = &shared.locks;
    let key = locks.named(key.clone());
    let (holds, queued) = locks.table().view_of(&key);
    let now = Instant::now();
    let refused = locks.journal().store_waiters();
    let refused = refused.into_iter().filter(|waiter| waiter.key == key);
    // The store has refused the first ones, and will wake them. The others wait behind them in the process.
    let refused = refused.map(|waiter| (waiter.since, waiter.mode, waiter.route, true));
    let queued = queued.into_iter();
    let queued = queued.map(|waiter| (waiter.since, waiter.mode, waiter.route, false));
    let mut waiters: Vec<_> = refused.chain(queued).collect();
    // Requests of one mode remain in the order of their queue.
    waiters.sort_by_key(|(since, ..)| *since);
    let shown = waiters.iter().take(SHOWN);
    let shown = shown.map(|(since, mode, route, asks_store)| {
        json!({
            "mode": mode.as_str(),
            "route": route.as_str(),
            "waited_ms": millis::since(*since, now),
            "asks_store": asks_store,
        })
    });
    let holds = holds.iter().take(SHOWN);
    json!({
        "key": key,
        "holds": holds.map(|hold| held_here(hold, now)).collect::<Vec<_>>(),
        "waiters": shown.collect::<Vec<_>>(),
        "waiting": waiters.len(),
        "store": store,
    })
}

/// The state of a key in the store.
pub(super) fn in_store(inspection: &Inspection, holders: &Holders) -> Value {
    let held = inspection.holders.iter().map(|holder| {
        let mut shown = holders.who(holder);
        shown["mode"] = holder.mode.as_str().into();
        shown["count"] = holder.count.into();
        shown["lease_left_ms"] = millis::left(holder.remaining).into();
        shown
    });
    json!({
        "holders": held.collect::<Vec<_>>(),
        "waiters": inspection.waiters,
        "truncated": inspection.truncated,
        "limit": inspection.limit,
        "error": null,
    })
}

/// The same, where the store does not say: `error` has the reason.
fn unknown(error: String) -> Value {
    json!({ "holders": [], "waiters": [], "truncated": false, "limit": null, "error": error })
}
