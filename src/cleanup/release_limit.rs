//! Limits how many releases the background sends at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shared_table::SharedTable;
use crate::store::BATCH;

/// Limits the releases that no caller waits for, for each partition of the store: guards that are dropped together are
/// released in turn, and a partition that is down does not delay another.
pub(crate) struct ReleaseLimit(SharedTable<u16, Arc<Semaphore>>);

impl Default for ReleaseLimit {
    fn default() -> Self {
        let is_in_use = |places: &Arc<Semaphore>| places.available_permits() < BATCH;
        Self(SharedTable::new(is_in_use))
    }
}

impl ReleaseLimit {
    /// Waits for one of the places of `partition`.
    pub(crate) async fn enter(&self, partition: u16) -> OwnedSemaphorePermit {
        let new = || Arc::new(Semaphore::new(BATCH));
        let places = self.0.find_or(&partition, new);
        let place = Arc::clone(&places).acquire_owned().await;
        place.expect("the places are never closed")
    }
}
