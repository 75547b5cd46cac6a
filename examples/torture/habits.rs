//! What all workers of a run have in common.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How they work, and on what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Habits {
    pub(crate) keys: usize,
    pub(crate) tasks: usize,
    pub(crate) lease_ms: u64,
    /// Whether the store serves fair queues and fencing tokens.
    pub(crate) ordered: bool,
    /// Whether every release is taken for confirmed, as by a client that does not look: so that the check is seen to fail.
    pub(crate) gullible: bool,
}

impl Habits {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Every key, and whether it is a read-write lock.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (String, bool)> {
        let keys = 0..self.keys;
        keys.flat_map(|n| {
            [
                (format!("exclusive:{n}"), false),
                (format!("shared:{n}"), true),
            ]
        })
    }
}
