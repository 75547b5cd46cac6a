//! Stores with one flaw each: the checker must find it.

use std::sync::atomic::{AtomicU64, Ordering};

use tower_distributed_lock::store::{
    AllOutcome, AnyOutcome, Attempt, LockStore, Outcome, Released, Renewal, Standing, Wakeups,
};
use tower_distributed_lock::{FencingToken, Hold, Inspect, Inspection, LockKey, StoreError};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Says that it granted what it refused.
    GrantsTwice,
    /// Ends whatever is held when anybody releases.
    ReleasesOthers,
    /// Renewing creates.
    Resurrects,
    /// Holds live half as long as they were promised to.
    ShortLease,
    /// Grants what was withdrawn.
    ForgetsWithdrawals,
    /// Keeps the first of several though the second is taken.
    KeepsAPart,
    /// Tokens do not rise.
    RepeatsTokens,
    /// Confirms what it does not carry.
    Confirms,
    /// Wakes nobody, and refuses for a while what is free.
    Sleepy,
    /// Keeps who has listened.
    KeepsListeners,
}

/// A store with a flaw, or with none.
#[derive(Clone)]
pub(super) struct Flawed<S> {
    inner: S,
    flaw: Flaw,
    calls: std::sync::Arc<AtomicU64>,
}

impl<S> Flawed<S> {
    pub(super) fn new(inner: S, flaw: Flaw) -> Self {
        Self {
            inner,
            flaw,
            calls: std::sync::Arc::default(),
        }
    }

    pub(super) fn inner(&self) -> &S {
        &self.inner
    }

    /// Whether the flaw shows now: not always, or nothing would work.
    fn shows(&self, flaw: Flaw) -> bool {
        self.flaw == flaw && self.calls.fetch_add(1, Ordering::Relaxed) % 4 == 3
    }

    fn standing(&self, standing: Standing) -> Standing {
        match self.flaw {
            Flaw::Confirms => Standing::Held,
            _ => standing,
        }
    }
}

impl<S: Inspect> LockStore for Flawed<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let mut attempt = attempt.clone();
        if self.flaw == Flaw::ShortLease {
            attempt.lease /= 2;
        }
        if self.shows(Flaw::Sleepy) {
            let retry_after = std::time::Duration::from_secs(3);
            return Ok(Outcome::Refused { retry_after });
        }
        match self.inner.acquire(&attempt).await? {
            Outcome::Refused { .. } if self.shows(Flaw::GrantsTwice) => {
                let token = attempt.fencing.map(|_| FencingToken::new(u64::MAX / 2));
                Ok(Outcome::Granted { token })
            }
            Outcome::Granted { token: Some(_) } if self.flaw == Flaw::RepeatsTokens => {
                let token = Some(FencingToken::new(7));
                Ok(Outcome::Granted { token })
            }
            outcome => Ok(outcome),
        }
    }

    async fn acquire_all(&self, attempts: &[Attempt]) -> Result<AllOutcome, StoreError> {
        let answer = self.inner.acquire_all(attempts).await;
        if let (Flaw::KeepsAPart, Ok(AllOutcome::Refused { .. })) = (self.flaw, &answer) {
            self.inner.acquire(&attempts[0]).await?;
        }
        answer
    }

    async fn acquire_any(&self, attempts: &[Attempt]) -> Result<AnyOutcome, StoreError> {
        self.inner.acquire_any(attempts).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Standing>, StoreError> {
        let mut standings = self.inner.renew(renewals).await?;
        if self.flaw == Flaw::Resurrects {
            for (Renewal { hold, lease }, standing) in renewals.iter().zip(&mut standings) {
                let attempt = Attempt {
                    hold: hold.clone(),
                    lease: *lease,
                    patience: None,
                    fencing: None,
                };
                if let Ok(Outcome::Granted { .. }) = self.inner.acquire(&attempt).await {
                    *standing = Standing::Held;
                }
            }
        }
        Ok(standings)
    }

    async fn check(&self, holds: &[Hold]) -> Result<Vec<Standing>, StoreError> {
        let standings = self.inner.check(holds).await?;
        Ok(standings.into_iter().map(|s| self.standing(s)).collect())
    }

    async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        if self.flaw == Flaw::ReleasesOthers && self.inner.force_unlock(&hold.key).await? {
            return Ok(Standing::Held.into());
        }
        let released = self.inner.release(hold).await?;
        Ok(Released {
            standing: self.standing(released.standing),
            ..released
        })
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let unanswered = unanswered && self.flaw != Flaw::ForgetsWithdrawals;
        self.inner.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        if self.flaw == Flaw::Sleepy {
            return Ok(Wakeups::new(tokio::sync::watch::channel(()).1, ()));
        }
        if self.flaw == Flaw::KeepsListeners {
            std::mem::forget(self.inner.subscribe(attempt).await?);
        }
        self.inner.subscribe(attempt).await
    }

    fn supports(
        &self,
        mode: tower_distributed_lock::LockMode,
        fenced: bool,
    ) -> Result<(), &'static str> {
        self.inner.supports(mode, fenced)
    }
}

impl<S: Inspect> Inspect for Flawed<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        self.inner.inspect(key).await
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        self.inner.force_unlock(key).await
    }
}
