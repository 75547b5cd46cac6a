//! The calls of a client that knows this store.

use tokio::time::Instant;

use super::MemoryStore;
use crate::error::StoreError;
use crate::lock::Hold;
use crate::store::{Attempt, Outcome, Record, Released, StoreAtOnce};

impl StoreAtOnce for MemoryStore {
    fn acquire_now(&self, attempt: &Attempt) -> Result<(Outcome, Instant), StoreError> {
        self.acquire_now(attempt)
    }

    fn holds_now(&self, hold: &Hold) -> bool {
        self.change(&hold.key, |key, _| key.state.holds(hold))
    }

    fn release_now(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        self.release_now(hold, record)
    }
}
