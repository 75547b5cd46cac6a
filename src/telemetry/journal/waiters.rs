//! Requests that the store has refused and that wait for it.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::lock::{LockKey, LockMode};
use crate::telemetry::Route;

/// A request that the store has refused, and one of the keys that it waits for.
#[derive(Debug, Clone)]
pub(crate) struct StoreWaiter {
    pub(crate) key: LockKey,
    pub(crate) mode: LockMode,
    pub(crate) route: Route,
    /// When the request began to wait.
    pub(crate) since: Instant,
}

/// By number. No number is used twice.
#[derive(Debug, Default)]
pub(super) struct StoreWaiters {
    waiters: HashMap<u64, StoreWaiter>,
    next: u64,
}

impl StoreWaiters {
    pub(super) fn add(&mut self, waiter: StoreWaiter) -> u64 {
        self.next += 1;
        self.waiters.insert(self.next, waiter);
        self.next
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.waiters.remove(&number);
        let (len, capacity) = (self.waiters.len(), self.waiters.capacity());
        // Frees the memory after many requests have left.
        if capacity > 1024 && len < capacity / 8 {
            self.waiters.shrink_to(len * 2);
        }
    }

    pub(super) fn all(&self) -> Vec<StoreWaiter> {
        self.waiters.values().cloned().collect()
    }
}
