//! The store: its audit, and the connections of this process.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{millis, problem};
use crate::client::LockClient;
#[cfg(feature = "redis")]
use crate::telemetry::store::meter::connection_uses;
#[cfg(feature = "redis")]
pub(super) use crate::telemetry::store::meter::watch;

/// How long an audit may take.
const LIMIT: Duration = Duration::from_secs(3);

/// The audit of the store, or why there is none, and its time.
pub(super) struct StoreView {
    at: Instant,
    audit: Result<Value, String>,
}

impl StoreView {
    pub(super) async fn look(locks: &LockClient) -> Self {
        let audit = match timeout(LIMIT, locks.audit()).await {
            Ok(Ok(audit)) => Ok(json!(audit)),
            Ok(Err(error)) => Err(problem::text(&error)),
            Err(_) => Err("the store did not answer in time".to_owned()),
        };
        Self {
            at: Instant::now(),
            audit,
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// `api/store`: the latest audit, if there is one, and the present state of the connections of all stores of the process.
pub(super) fn json(latest: Option<&StoreView>) -> Value {
    let audit = match latest {
        Some(view) => view.audit.as_ref().map_err(String::as_str),
        None => Err("the store has not answered yet"),
    };
    json!({
        "audited_ms": latest.map(|view| millis::of(view.age())),
        "audit": audit.ok(),
        "error": audit.err(),
        "connections": connection_uses(),
    })
}

/// There are no connections without Redis.
#[cfg(not(feature = "redis"))]
fn connection_uses() -> [(); 0] {
    []
}

#[cfg(not(feature = "redis"))]
pub(super) fn watch() {}
