//! A memory store that may have a flaw.

mod store;

use std::slice::from_ref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, HoldStatus, Inspect, LockStore, LockStoreExt, Outcome, Record, Released,
};
use tower_distributed_lock::{LockMode, MemoryStore};

use super::flaw::Flaw;
use super::gate::Gate;

/// A store with a flaw, or with none. Clones stand for other processes.
#[derive(Clone)]
pub(crate) struct Flawed {
    pub(crate) store: MemoryStore,
    flaw: Flaw,
    calls: Arc<AtomicU64>,
    /// What the flaw needs to know: the waiters in line, the waiters that have subscribed, or the readers.
    known: Arc<Mutex<Vec<Hold>>>,
    /// The gate before a subscription.
    pub(crate) subscribing: Arc<Gate>,
    /// The gate before a renewal.
    pub(crate) renewing: Arc<Gate>,
    /// The gate between an attempt's execution and its answer.
    pub(crate) answering: Arc<Gate>,
}

/// Whether the attempt is granted in its order only.
pub(crate) fn is_in_order(attempt: &Attempt) -> bool {
    match attempt.hold.mode {
        LockMode::Fair => true,
        LockMode::Read => false,
        _ => attempt.in_line && attempt.patience.is_some(),
    }
}

impl Flawed {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self {
            store: MemoryStore::new(),
            flaw,
            calls: Arc::default(),
            known: Arc::default(),
            subscribing: Arc::default(),
            renewing: Arc::default(),
            answering: Arc::default(),
        }
    }

    /// Whether the flaw takes effect now: not always, or nothing would work.
    fn shows(&self, flaw: Flaw) -> bool {
        self.flaw == flaw && self.calls.fetch_add(1, Ordering::Relaxed) % 4 == 3
    }

    fn knows(&self, hold: &Hold) {
        let mut known = self.known.lock().unwrap();
        if !known.contains(hold) {
            known.push(hold.clone());
        }
    }

    /// Returns whether it was known.
    fn forgets(&self, hold: &Hold) -> bool {
        let mut known = self.known.lock().unwrap();
        let before = known.len();
        known.retain(|other| other != hold);
        known.len() < before
    }

    /// Whether another attempt is before this one in a line that only answers and withdrawals shorten.
    fn is_behind(&self, attempt: &Attempt) -> bool {
        if attempt.patience.is_some() {
            self.knows(&attempt.hold);
        }
        let known = self.known.lock().unwrap();
        let mut ahead = known.iter().take_while(|first| **first != attempt.hold);
        ahead.any(|first| first.key == attempt.hold.key)
    }

    async fn holds(&self, hold: &Hold) -> Result<bool, StoreError> {
        Ok(self.store.check(from_ref(hold)).await?[0] == HoldStatus::Held)
    }

    /// The answer of a flaw to an attempt that it does not pass on.
    async fn answers(&self, attempt: &Attempt) -> Result<Option<Outcome>, StoreError> {
        let hold = &attempt.hold;
        let is_refused = match self.flaw {
            Flaw::RefusesACopy => self.holds(hold).await?,
            Flaw::KeepsTheFirstLease if self.holds(hold).await? => {
                return Ok(Some(Outcome::Granted { token: None }));
            }
            // The answer from before the subscription is assumed to be still valid.
            Flaw::SleepsAfterSubscribing => self.forgets(hold),
            Flaw::HonoursTheDead => is_in_order(attempt) && self.is_behind(attempt),
            _ => self.shows(Flaw::Sleepy),
        };
        let retry_after = Duration::from_secs(3);
        Ok(is_refused.then_some(Outcome::Refused { retry_after }))
    }

    /// The attempt as a flaw passes it on.
    async fn changed(&self, attempt: &Attempt) -> Result<Attempt, StoreError> {
        let mut changed = attempt.clone();
        let key = &attempt.hold.key;
        match (self.flaw, attempt.hold.mode) {
            (Flaw::ShortLease, _) => changed.lease /= 2,
            (Flaw::HoldsForEver, _) => changed.lease *= 100,
            (Flaw::Barges, mode) => {
                changed.in_line = false;
                if mode == LockMode::Fair {
                    changed.hold.mode = LockMode::Reentrant;
                }
            }
            (Flaw::OneMorePermit, LockMode::Permit(limit)) => {
                self.store.set_permits(key, limit.checked_add(1)).await?;
            }
            (Flaw::LimitForgetsHolders, LockMode::Permit(limit)) => {
                let held = self.store.inspect(key).await?.holders.len();
                if held == limit.get() as usize {
                    let more = limit.checked_add(limit.get());
                    self.store.set_permits(key, more).await?;
                }
            }
            _ => {}
        }
        Ok(changed)
    }

    async fn end(&self, hold: &Hold) -> Result<Released, StoreError> {
        if self.flaw == Flaw::ReleasesOthers && self.store.force_unlock(&hold.key).await? {
            return Ok(HoldStatus::Held.into());
        }
        let released = self.store.release(hold, None).await?;
        if let (Flaw::PermitReturnsTwice, LockMode::Permit(limit), HoldStatus::Gone) =
            (self.flaw, hold.mode, released.status)
        {
            let one_more = limit.checked_add(1);
            self.store.set_permits(&hold.key, one_more).await?;
        }
        Ok(released)
    }

    async fn end_recording(&self, hold: &Hold, record: &Record) -> Result<Released, StoreError> {
        let mut released = match self.flaw {
            Flaw::ForgetsRecords | Flaw::RecordsAfterRelease => {
                self.store.release(hold, None).await?
            }
            _ => self.store.release(hold, Some(record)).await?,
        };
        let is_recorded_now = match self.flaw {
            Flaw::RecordsAlways => released.status == HoldStatus::Gone,
            Flaw::RecordsAfterRelease => {
                sleep(Duration::from_millis(5)).await;
                // A loss is not even noticed.
                released.status = HoldStatus::Held;
                true
            }
            _ => false,
        };
        if is_recorded_now {
            let again = Attempt::new(hold.clone(), record.retention);
            if let Ok(Outcome::Granted { .. }) = self.store.acquire(&again).await {
                self.store.release(hold, Some(record)).await?;
            }
        }
        Ok(released)
    }
}
