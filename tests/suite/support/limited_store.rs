//! A store that supports less than the memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Inspect, Inspection, LockStore, Outcome, Record, Released,
    Renewal, Wakeups,
};
use tower_distributed_lock::{LockKey, MemoryStore};

/// The memory store, with these capabilities. It inspects locks, and lists none.
#[derive(Clone)]
pub(crate) struct LimitedStore {
    store: MemoryStore,
    capabilities: Capabilities,
    /// How long after its effect a forced unlock is answered.
    delay: Duration,
    /// How long after the question an inspection is answered.
    inspection: Duration,
    /// How many inspections were asked for.
    inspections: Arc<AtomicUsize>,
}

impl LimitedStore {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        Self {
            store: MemoryStore::new(),
            capabilities,
            delay: Duration::ZERO,
            inspection: Duration::ZERO,
            inspections: Arc::default(),
        }
    }

    /// A store whose locks a client's admin breaks. The answer comes this long after the effect.
    pub(crate) fn breaking_late(delay: Duration) -> Self {
        let mut store = Self::new(Capabilities::all());
        store.delay = delay;
        store.capabilities = Capabilities::all().inspect(store.clone());
        store
    }

    /// A store that takes so long to answer an inspection.
    pub(crate) fn inspecting_late(delay: Duration) -> Self {
        let mut store = Self::new(Capabilities::all());
        store.inspection = delay;
        store.capabilities = Capabilities::all().inspect(store.clone());
        store
    }

    /// How many inspections were asked for.
    pub(crate) fn inspections(&self) -> usize {
        self.inspections.load(Ordering::Relaxed)
    }
}

impl LockStore for LimitedStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.store.acquire(attempt).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.store.renew(renewals).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        self.store.release(hold, record).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.store.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.store.subscribe(attempt).await
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }
}

impl Inspect for LimitedStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        self.inspections.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.inspection).await;
        self.store.inspect(key).await
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let answer = self.store.force_unlock(key).await;
        tokio::time::sleep(self.delay).await;
        answer
    }
}
