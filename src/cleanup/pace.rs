//! Limits how many releases the background sends at once.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::BATCH;
use crate::sync::Mutex;

/// Limits the releases that no caller waits for, for each partition of the store: guards that are dropped together are
/// released in turn, and a partition that is down does not delay another.
#[derive(Default)]
pub(crate) struct ReleasePace {
    /// The partitions with releases under way. The mutex protects the map and its entries. The first slot of a partition makes
    /// its entry, the last one removes it: between calls `slots` is the number of its [`PaceSlot`]s, and never zero. No other
    /// mutex is taken under it.
    partitions: Mutex<HashMap<u16, Partition>>,
}

struct Partition {
    places: Arc<Semaphore>,
    /// The number of slots, with a place and without.
    slots: usize,
}

impl ReleasePace {
    /// Waits for one of the places of `partition`.
    pub(crate) async fn enter(self: Arc<Self>, partition: u16) -> PaceSlot {
        let places = {
            let mut partitions = self.partitions.lock();
            let partition = partitions.entry(partition).or_insert_with(|| Partition {
                places: Arc::new(Semaphore::new(BATCH)),
                slots: 0,
            });
            partition.slots += 1;
            partition.places.clone()
        };
        let mut slot = PaceSlot {
            pace: self,
            partition,
            place: None,
        };
        slot.place = places.acquire_owned().await.ok();
        slot
    }
}

/// A place, or the wait for one.
pub(crate) struct PaceSlot {
    pace: Arc<ReleasePace>,
    partition: u16,
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for PaceSlot {
    fn drop(&mut self) {
        // The place is dropped first, so that the next owner's waker does not run under the mutex.
        drop(self.place.take());
        let mut partitions = self.pace.partitions.lock();
        if let Some(partition) = partitions.get_mut(&self.partition) {
            partition.slots -= 1;
            if partition.slots == 0 {
                partitions.remove(&self.partition);
            }
        }
    }
}
