//! A store that may have a flaw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Inspect, Inspection, LockStore, LockStoreExt, Outcome,
    Record, Release, Released, Renewal, SeveralOutcome, Wakeups, Want,
};
use tower_distributed_lock::{FencingToken, LockKey, LockMode};

use super::flaw::Flaw;
use super::line::is_in_order;

/// A store with a flaw, or with none.
#[derive(Clone)]
pub(super) struct Flawed<S> {
    inner: S,
    flaw: Flaw,
    calls: Arc<AtomicU64>,
    /// The waiters that are granted in order.
    line: Arc<Mutex<Vec<Hold>>>,
}

impl<S> Flawed<S> {
    pub(super) fn new(inner: S, flaw: Flaw) -> Self {
        Self {
            inner,
            flaw,
            calls: Arc::default(),
            line: Arc::default(),
        }
    }

    pub(super) fn inner(&self) -> &S {
        &self.inner
    }

    /// Whether the flaw takes effect now: not always, or nothing would work.
    fn shows(&self, flaw: Flaw) -> bool {
        self.flaw == flaw && self.calls.fetch_add(1, Ordering::Relaxed) % 4 == 3
    }

    /// Records an attempt that is granted in order. Returns whether another one is before it.
    fn is_behind(&self, attempt: &Attempt) -> bool {
        let hold = &attempt.hold;
        if self.flaw != Flaw::HonoursTheDead || !is_in_order(attempt) {
            return false;
        }
        let mut line = self.line.lock().unwrap();
        if !line.contains(hold) && attempt.patience.is_some() {
            line.push(hold.clone());
        }
        let mut ahead = line.iter().take_while(|first| *first != hold);
        ahead.any(|first| first.key == hold.key)
    }

    fn leaves(&self, hold: &Hold) {
        self.line.lock().unwrap().retain(|waiter| waiter != hold);
    }

    fn status(&self, status: HoldStatus) -> HoldStatus {
        match self.flaw {
            Flaw::Confirms => HoldStatus::Held,
            _ => status,
        }
    }
}

impl<S: Inspect> Flawed<S> {
    async fn end(&self, hold: &Hold) -> Result<Released, StoreError> {
        if self.flaw == Flaw::ReleasesOthers && self.inner.force_unlock(&hold.key).await? {
            return Ok(HoldStatus::Held.into());
        }
        let mut released = self.inner.release_one(hold).await?;
        released.status = self.status(released.status);
        Ok(released)
    }

    async fn end_recording(&self, hold: &Hold, record: &Record) -> Result<Released, StoreError> {
        let mut released = match self.flaw {
            Flaw::ForgetsRecords => self.inner.release_one(hold).await?,
            _ => self.inner.release_recording(hold, record).await?,
        };
        if self.flaw == Flaw::RecordsAlways && released.status == HoldStatus::Gone {
            let attempt = Attempt::new(hold.clone(), record.retention);
            if let Ok(Outcome::Granted { .. }) = self.inner.acquire(&attempt).await {
                self.inner.release_recording(hold, record).await?;
            }
        }
        released.status = self.status(released.status);
        Ok(released)
    }
}

impl<S: Inspect> LockStore for Flawed<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let mut attempt = attempt.clone();
        if self.flaw == Flaw::ShortLease {
            attempt.lease /= 2;
        }
        if let LockMode::Permit(limit) = attempt.hold.mode {
            if self.flaw == Flaw::OneMorePermit {
                let limit = limit.checked_add(1);
                self.inner.set_permits(&attempt.hold.key, limit).await?;
            }
            if self.flaw == Flaw::KeepsExpiredPermits {
                attempt.lease *= 100;
            }
        }
        if self.flaw == Flaw::Barges {
            attempt.in_line = false;
            if attempt.hold.mode == LockMode::Fair {
                attempt.hold.mode = LockMode::Reentrant;
            }
        }
        if self.shows(Flaw::Sleepy) || self.is_behind(&attempt) {
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
            outcome => {
                if let Outcome::Granted { .. } = outcome {
                    self.leaves(&attempt.hold);
                }
                Ok(outcome)
            }
        }
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let answer = self.inner.acquire_several(attempts, want).await;
        if let (Flaw::KeepsAPart, Want::All, Ok(SeveralOutcome::Refused { .. })) =
            (self.flaw, want, &answer)
        {
            self.inner.acquire(&attempts[0]).await?;
        }
        answer
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let mut statuses = self.inner.renew(renewals).await?;
        for (Renewal { hold, lease, .. }, status) in renewals.iter().zip(&mut statuses) {
            let Some(lease) = *lease else {
                *status = self.status(*status);
                continue;
            };
            if self.flaw == Flaw::Resurrects {
                let attempt = Attempt::new(hold.clone(), lease);
                if let Ok(Outcome::Granted { .. }) = self.inner.acquire(&attempt).await {
                    *status = HoldStatus::Held;
                }
            }
        }
        Ok(statuses)
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        let mut all = Vec::with_capacity(releases.len());
        for release in releases {
            all.push(match &release.record {
                None => self.end(&release.hold).await?,
                Some(record) => self.end_recording(&release.hold, record).await?,
            });
        }
        Ok(all)
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        let record = self.inner.record(key).await?;
        Ok(match record {
            Some(_) if self.shows(Flaw::LosesRecords) => None,
            Some(record) if self.flaw == Flaw::GarblesRecords => {
                let (last, rest) = record.split_last().expect("a record says something");
                Some([rest, &[last ^ 1]].concat().into())
            }
            record => record,
        })
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.leaves(&attempt.hold);
        let unanswered = unanswered && self.flaw != Flaw::ForgetsWithdrawals;
        self.inner.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        if self.flaw == Flaw::Sleepy {
            let (signal, wakeups) = tokio::sync::watch::channel(());
            return Ok(Wakeups::new(wakeups, signal));
        }
        if self.flaw == Flaw::KeepsListeners {
            std::mem::forget(self.inner.subscribe(attempt).await?);
        }
        self.inner.subscribe(attempt).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
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
