//! A memory store that tests can steal from, unplug and silence.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Outcome, Release, Released, Renewal,
};
use tower_distributed_lock::{
    Hold, LockKey, LockStore, LockStoreExt, MemoryStore, StoreError, StoreErrorKind, Wakeups,
};

#[derive(Clone, Default)]
pub(crate) struct TestStore {
    memory: MemoryStore,
    granted: Arc<Mutex<Vec<Hold>>>,
    down: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl TestStore {
    /// Takes away whatever was granted so far.
    pub(crate) async fn steal(&self) {
        let granted = std::mem::take(&mut *self.granted.lock().unwrap());
        assert!(!granted.is_empty(), "there is nothing to steal");
        for hold in granted {
            self.memory.release_one(&hold).await.unwrap();
        }
    }

    /// From now on (or not) it cannot be reached.
    pub(crate) fn unplug(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    /// From now on (or not) it does not answer.
    pub(crate) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// How many locks were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Nothing is held, nobody waits.
    pub(crate) fn is_free(&self) -> bool {
        self.memory.is_empty()
    }

    async fn gate(&self) -> Result<(), StoreError> {
        while self.silent.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        match self.down.load(Ordering::Relaxed) {
            true => Err(StoreError::new(StoreErrorKind::Unreachable, "unplugged")),
            false => Ok(()),
        }
    }
}

impl LockStore for TestStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.gate().await?;
        let outcome = self.memory.acquire(attempt).await?;
        if let Outcome::Granted { .. } = outcome {
            self.granted.lock().unwrap().push(attempt.hold.clone());
        }
        Ok(outcome)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.gate().await?;
        self.memory.renew(renewals).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        self.gate().await?;
        self.memory.release(releases).await
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.gate().await?;
        self.memory.withdraw(attempt, unanswered).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.gate().await?;
        self.memory.record(key).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.gate().await?;
        self.memory.subscribe(attempt).await
    }
}
