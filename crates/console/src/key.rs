//! One key in full.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::holders::Holders;
use crate::millis;
use crate::problem;
use crate::row::held_here;
use crate::shared::Shared;
use tower_distributed_lock::lock::LockKey;
use tower_distributed_lock::store::Inspection;

/// How many holds and waiters of this process are shown.
const SHOWN: usize = 200;

/// `api/key`: the state of `key` here and in the store. Waits for the store for `limit` at most.
pub(crate) async fn look(shared: &Shared, key: &LockKey, limit: Duration) -> Value {
    let store = match timeout(limit, shared.holders.inspect(key)).await {
        Ok(Ok(inspection)) => in_store(&inspection, &shared.holders),
        Ok(Err(error)) => unknown(problem::text(&error)),
        Err(_) => unknown(format!("the store has not answered within {limit:?}")),
    };
    let here = shared.locks.snapshot_of(key.clone());
    let (holds, waiters) = here
        .map(|here| (here.holds, here.waiters))
        .unwrap_or_default();
    let shown = waiters.iter().take(SHOWN).map(|waiter| {
        json!({
            "mode": waiter.mode.as_str(),
            "route": waiter.route.unwrap_or("none"),
            "waited_ms": millis::to_ms(waiter.waited),
            "asks_store": waiter.in_store,
        })
    });
    let holds = holds.iter().take(SHOWN);
    json!({
        "key": key,
        "holds": holds.map(held_here).collect::<Vec<_>>(),
        "waiters": shown.collect::<Vec<_>>(),
        "waiting": waiters.len(),
        "store": store,
    })
}

/// The state of a key in the store.
pub(crate) fn in_store(inspection: &Inspection, holders: &Holders) -> Value {
    let held = inspection.holders.iter().map(|holder| {
        let mut shown = holders.who(holder);
        shown["mode"] = holder.mode.as_str().into();
        shown["count"] = holder.count.into();
        shown["lease_left_ms"] = millis::remaining_ms(holder.remaining).into();
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
