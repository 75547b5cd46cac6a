//! Limits how many releases the background sends at once.

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shared_table::SharedTable;
use crate::store::BATCH;

/// Limits the releases that no caller waits for, for each partition of the store: guards that are dropped together are
/// released in turn, and a partition that is down does not delay another.
pub(crate) struct ReleasePace(SharedTable<u16, Semaphore>);

impl Default for ReleasePace {
    fn default() -> Self {
        Self(SharedTable::new(|_| false))
    }
}

impl ReleasePace {
    /// Waits for one of the places of `partition`.
    pub(crate) async fn enter(&self, partition: u16) -> Option<OwnedSemaphorePermit> {
        let places = self.0.find_or(partition, || Semaphore::new(BATCH));
        places.acquire_owned().await.ok()
    }
}
