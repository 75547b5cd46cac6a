//! The store proves itself: the tests that every store of `tower-distributed-lock` passes, and each of its modes.

use std::time::Duration;

use tower_distributed_lock::{LockStore, MemoryStore};
use tower_distributed_lock_quorum::QuorumStore;
use tower_distributed_lock_testing::conformance::{Clock, Testbed};
use tower_distributed_lock_testing::{Fault, Faults, FaultyStore};

/// `N` memory stores, each of which takes its time to answer.
struct Quorum<const N: usize>([MemoryStore; N]);

/// Questions overtake each other, and callers are dropped while theirs is under way.
fn far<S: LockStore>(store: S) -> FaultyStore<S> {
    let slow = Faults::none().chance(Fault::Slow, 1.0);
    FaultyStore::new(
        store,
        slow.delay(Duration::from_millis(2)),
        fastrand::u64(..),
    )
}

impl<const N: usize> Testbed for Quorum<N> {
    type Store = QuorumStore<FaultyStore<MemoryStore>>;
    // A memory store follows tokio's clock.
    const CLOCK: Clock = Clock::Paused(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime")
    });

    async fn start() -> Self {
        Self(std::array::from_fn(|_| MemoryStore::new()))
    }

    async fn connect(&self) -> Self::Store {
        QuorumStore::new(self.0.clone().map(far)).expect("several stores")
    }

    async fn leftovers(&self) -> Vec<String> {
        let left = self.0.iter().filter(|store| !store.is_empty());
        left.map(|_| "a hold, a waiter or a listener".to_owned())
            .collect()
    }
}

mod three {
    tower_distributed_lock_testing::conformance!(super::Quorum::<3>: reentrant read write);
}

mod five {
    tower_distributed_lock_testing::conformance!(super::Quorum::<5>: reentrant read write);
}
