//! A memory store in which tests can end holds, and which they can disconnect and silence.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal, Unsupported,
    Wakeups,
};
use tower_distributed_lock::{LockKey, MemoryStore};

/// The name of a key, in a partition of its own, of which the store answers no release and no owner check.
pub(crate) const SILENT: &str = "silent";

/// The name of a key whose release the store answers late.
pub(crate) const SLOW: &str = "slow";

/// The name of a key whose release the store leaves undecided.
pub(crate) const UNDECIDED: &str = "undecided";

#[derive(Clone, Default)]
pub(crate) struct TestStore {
    memory: MemoryStore,
    granted: Arc<Mutex<Vec<Hold>>>,
    down: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    delays: Arc<Mutex<VecDeque<Duration>>>,
    only: Option<Capabilities>,
}

impl TestStore {
    /// A store with these capabilities only.
    pub(crate) fn limited(only: Capabilities) -> Self {
        Self {
            only: Some(only),
            ..Self::default()
        }
    }

    /// Ends all holds that were granted so far.
    pub(crate) async fn steal(&self) {
        let granted = std::mem::take(&mut *self.granted.lock().unwrap());
        assert!(!granted.is_empty(), "there is nothing to steal");
        for hold in granted {
            self.memory.release(&hold, None).await.unwrap();
        }
    }

    /// Sets whether the store is unreachable.
    pub(crate) fn unplug(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    /// Sets whether the store is silent.
    pub(crate) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// Sets how late the next reads of records are.
    pub(crate) fn delay_reads(&self, delays: impl IntoIterator<Item = Duration>) {
        self.delays.lock().unwrap().extend(delays);
    }

    /// The number of attempts.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether there is no hold and no waiter.
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
        let mut checks = renewals.iter().filter(|renewal| renewal.lease.is_none());
        if checks.any(|check| check.hold.key.as_str() == SILENT) {
            std::future::pending::<()>().await;
        }
        self.memory.renew(renewals).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        self.gate().await?;
        let key = hold.key.as_str();
        if key == SILENT {
            std::future::pending::<()>().await;
        }
        let released = self.memory.release(hold, record).await?;
        if key == SLOW {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        Ok(match key == UNDECIDED {
            true => HoldStatus::Unknown.into(),
            false => released,
        })
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        Ok(u16::from(key.as_str() == SILENT))
    }

    fn capabilities(&self) -> Capabilities {
        let only = self.only.clone();
        only.unwrap_or_else(|| self.memory.capabilities())
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.gate().await?;
        self.memory.withdraw(attempt, unanswered).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.gate().await?;
        let delay = self.delays.lock().unwrap().pop_front();
        tokio::time::sleep(delay.unwrap_or_default()).await;
        self.memory.record(key).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.gate().await?;
        self.memory.subscribe(attempt).await
    }
}
