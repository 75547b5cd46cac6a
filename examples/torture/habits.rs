//! The settings of all workers of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The keys and the behaviour of the workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Habits {
    pub(crate) keys: usize,
    pub(crate) tasks: usize,
    pub(crate) lease_ms: u64,
    /// Whether the store serves fair queues and fencing tokens.
    pub(crate) ordered: bool,
    /// Whether the store serves permits.
    pub(crate) permits: bool,
    /// Whether every release counts as confirmed, as in a client that ignores the answer. With this the check must fail.
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
