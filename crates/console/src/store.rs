//! The store: its audit, and how fast it answers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;
use tower_distributed_lock::{LockClient, LockError};

use crate::{millis, problem};

/// How long an audit may take.
const AUDIT_LIMIT: Duration = Duration::from_secs(3);

/// The audit of the store, and the time of its answer to the simplest question, or why there are none; and when that was.
pub(crate) struct StoreView {
    at: Instant,
    seen: Result<(Value, Duration), String>,
}

impl StoreView {
    pub(crate) async fn look(locks: &LockClient) -> Self {
        let looking = async {
            let answered = locks.ping().await?;
            Ok::<_, LockError>((json!(locks.audit().await?), answered))
        };
        let seen = match timeout(AUDIT_LIMIT, looking).await {
            Ok(seen) => seen.map_err(|error| problem::text(&error)),
            Err(_) => Err("the store did not answer in time".to_owned()),
        };
        Self {
            at: Instant::now(),
            seen,
        }
    }

    pub(crate) fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// `api/store`: the latest audit, if there is one.
pub(crate) fn json(latest: Option<&StoreView>) -> Value {
    let seen = match latest {
        Some(view) => view.seen.as_ref().map_err(String::as_str),
        None => Err("the store has not answered yet"),
    };
    json!({
        "audited_ms": latest.map(|view| millis::to_ms(view.age())),
        "audit": seen.ok().map(|(audit, _)| audit),
        "answered_us": seen.ok().map(|(_, answered)| answered.as_micros()),
        "error": seen.err(),
    })
}
