//! A store that is shared with strangers.

use tokio::runtime::Handle;
use tower_distributed_lock::store::{
    AllOutcome, AnyOutcome, Attempt, HoldStatus, LockStore, Outcome, Released, Renewal, Wakeups,
};
use tower_distributed_lock::{Hold, LockKey, LockMode, StoreError};

/// Puts a prefix before every name, so that no name is anybody else's.
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
        Attempt {
            hold: self.hold(&attempt.hold),
            ..attempt.clone()
        }
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
        let renewals = renewals.iter().map(|renewal| Renewal {
            hold: self.hold(&renewal.hold),
            ..renewal.clone()
        });
        self.inner.renew(&renewals.collect::<Vec<_>>()).await
    }

    async fn check(&self, holds: &[Hold]) -> Result<Vec<HoldStatus>, StoreError> {
        let holds: Vec<_> = holds.iter().map(|hold| self.hold(hold)).collect();
        self.inner.check(&holds).await
    }

    async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        self.inner.release(&self.hold(hold)).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let attempt = self.attempt(attempt);
        self.inner.withdraw(&attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.inner.subscribe(&self.attempt(attempt)).await
    }

    async fn acquire_all(&self, attempts: &[Attempt]) -> Result<AllOutcome, StoreError> {
        self.inner.acquire_all(&self.attempts(attempts)).await
    }

    async fn acquire_any(&self, attempts: &[Attempt]) -> Result<AnyOutcome, StoreError> {
        self.inner.acquire_any(&self.attempts(attempts)).await
    }

    fn part(&self, key: &LockKey) -> u16 {
        self.inner.part(&self.key(key))
    }

    fn accepts(&self, key: &LockKey) -> Result<(), &'static str> {
        self.inner.accepts(&self.key(key))
    }

    fn renewal_runtime(&self) -> Option<Handle> {
        self.inner.renewal_runtime()
    }

    fn supports(&self, mode: LockMode, fenced: bool) -> Result<(), &'static str> {
        self.inner.supports(mode, fenced)
    }
}
