//! Limits how many releases the background sends at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shared_table::{SharedRow, SharedTable};
use crate::store::BATCH;

/// Limits the releases that no caller waits for, for each partition of the store: guards that are dropped together are
/// released in turn, and a partition that is down does not delay another.
pub(crate) struct ReleasePace(SharedTable<u16, Arc<Semaphore>>);

impl Default for ReleasePace {
    fn default() -> Self {
        Self(SharedTable::new(|_| false))
    }
}

impl ReleasePace {
    /// Waits for one of the places of `partition`.
    pub(crate) async fn enter(&self, partition: u16) -> Option<PaceSlot> {
        let places = self
            .0
            .find_or(&partition, || Arc::new(Semaphore::new(BATCH)));
        let permit = Arc::clone(&places).acquire_owned().await.ok()?;
        Some(PaceSlot {
            _permit: permit,
            _places: places,
        })
    }
}

/// One of the places of a partition.
pub(crate) struct PaceSlot {
    _permit: OwnedSemaphorePermit,
    _places: SharedRow<u16, Arc<Semaphore>>,
}
