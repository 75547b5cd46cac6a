//! A store that other tests share.

use bytes::Bytes;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want,
};

/// Puts a prefix before every name, so that no other test uses the name.
pub(super) struct Apart<S> {
    inner: S,
    prefix: String,
}

impl<S> Apart<S> {
    pub(super) fn new(inner: S, prefix: &str) -> Self {
        Self {
            inner,
            prefix: prefix.to_owned(),
        }
    }

    fn key(&self, key: &LockKey) -> LockKey {
        format!("{}{key}", self.prefix).into()
    }

    fn hold(&self, hold: &Hold) -> Hold {
        Hold {
            key: self.key(&hold.key),
            ..hold.clone()
        }
    }

    fn attempt(&self, attempt: &Attempt) -> Attempt {
        let mut attempt = attempt.clone();
        attempt.hold = self.hold(&attempt.hold);
        attempt
    }

    fn attempts(&self, attempts: &[Attempt]) -> Vec<Attempt> {
        let attempts = attempts.iter();
        attempts.map(|attempt| self.attempt(attempt)).collect()
    }
}

impl<S: LockStore> LockStore for Apart<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.inner.acquire(&self.attempt(attempt)).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let mut renewals = renewals.to_vec();
        for renewal in &mut renewals {
            renewal.hold = self.hold(&renewal.hold);
        }
        self.inner.renew(&renewals).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        self.inner.release(&self.hold(hold), record).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let attempt = self.attempt(attempt);
        self.inner.withdraw(&attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.inner.subscribe(&self.attempt(attempt)).await
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let attempts = self.attempts(attempts);
        self.inner.acquire_several(&attempts, want).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.inner.record(&self.key(key)).await
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        self.inner.partition(&self.key(key))
    }
}
