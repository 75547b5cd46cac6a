//! A store with a bug, and with gates at which an exhibit stops operations.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Inspect, LockStore, LockStoreExt, Outcome, Record, Release,
    Released, Renewal, Wakeups,
};
use tower_distributed_lock::{LockKey, LockMode, MemoryStore};

/// The bug of a [`Mutant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// A waiter sleeps after its subscription, without asking again.
    SleepsAfterSubscribing,
    /// A renewal sets the key, even if it does not exist.
    RenewalCreates,
    /// A release deletes the key, even if another owner holds it.
    ReleaseDeletesAnything,
    /// A waiter keeps its place in the queue until its announced time-out.
    DeadKeepTheirPlace,
    /// Readers share one time to live, and a renewal of one reader renews it for all.
    OneTimeToLive,
    /// An attempt that is given up is not withdrawn.
    NothingIsTakenBack,
    /// The lock is released before the answer is recorded.
    RecordsAfterRelease,
    /// The release of a permit that has expired says that the permit was held.
    ExpiredPermitConfirmed,
    /// A permit that has expired is given back by its expiry, and again by its release.
    PermitReturnsTwice,
    /// The limit of an attempt is set for the key while every permit is held, which forgets the holders.
    LimitForgetsHolders,
    /// A permit does not expire.
    DeadKeepTheirPermits,
}

/// A memory store, unchanged or with a [`Bug`].
#[derive(Clone)]
pub(super) struct Mutant {
    pub(super) store: MemoryStore,
    bug: Option<Bug>,
    memory: Arc<Mutex<Memory>>,
    /// The gate before a subscription.
    pub(super) subscribing: Arc<Gate>,
    /// The gate before a renewal.
    pub(super) renewing: Arc<Gate>,
    /// The gate between an attempt's execution and its answer.
    pub(super) answering: Arc<Gate>,
}

/// The state that the bugs need.
#[derive(Default)]
struct Memory {
    granted: Vec<Hold>,
    subscribed: HashSet<HoldId>,
    queue: VecDeque<(HoldId, Instant)>,
}

/// Lets everything pass until it is closed, and then stops the first operation.
#[derive(Default)]
pub(super) struct Gate {
    closed: AtomicBool,
    reached: Notify,
    opened: Notify,
}

impl Gate {
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until an operation has stopped at the gate.
    pub(super) async fn reached(&self) {
        self.reached.notified().await;
    }

    pub(super) fn open(&self) {
        self.opened.notify_one();
    }

    async fn pass(&self) {
        if self.closed.swap(false, Ordering::SeqCst) {
            self.reached.notify_one();
            self.opened.notified().await;
        }
    }
}

impl Mutant {
    pub(super) fn new(store: MemoryStore, bug: Option<Bug>) -> Self {
        Self {
            store,
            bug,
            memory: Arc::default(),
            subscribing: Arc::default(),
            renewing: Arc::default(),
            answering: Arc::default(),
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether another attempt is before this one in a queue that never drops dead waiters.
    fn stands_behind(&self, attempt: &Attempt) -> bool {
        let Some(patience) = attempt.patience else {
            return false;
        };
        let (now, id) = (Instant::now(), attempt.hold.id);
        let mut memory = self.memory.lock().unwrap();
        memory.queue.retain(|(_, until)| now < *until);
        if memory.queue.iter().all(|(waiting, _)| *waiting != id) {
            memory.queue.push_back((id, now + patience));
        }
        memory.queue.front().is_some_and(|(first, _)| *first != id)
    }

    fn leave_queue(&self, id: HoldId) {
        let mut memory = self.memory.lock().unwrap();
        memory.queue.retain(|(waiting, _)| *waiting != id);
    }

    fn remember(&self, hold: &Hold) {
        self.leave_queue(hold.id);
        self.memory.lock().unwrap().granted.push(hold.clone());
    }

    fn granted(&self, key: &LockKey, mode: LockMode) -> Vec<Hold> {
        let memory = self.memory.lock().unwrap();
        let mut granted = memory.granted.clone();
        granted.retain(|hold| hold.key == *key && hold.mode == mode);
        granted
    }

    async fn end(&self, hold: &Hold) -> Result<Released, StoreError> {
        if self.has(Bug::ReleaseDeletesAnything) {
            for other in self.granted(&hold.key, hold.mode) {
                self.store.release_one(&other).await?;
            }
            return Ok(HoldStatus::Held.into());
        }
        let mut released = self.store.release_one(hold).await?;
        if let LockMode::Permit(limit) = hold.mode
            && released.status == HoldStatus::Gone
        {
            if self.has(Bug::ExpiredPermitConfirmed) {
                released.status = HoldStatus::Held;
            }
            if self.has(Bug::PermitReturnsTwice) {
                let one_more = limit.checked_add(1);
                self.store.set_permits(&hold.key, one_more).await?;
            }
        }
        Ok(released)
    }

    async fn end_recording(&self, hold: &Hold, record: &Record) -> Result<Released, StoreError> {
        if self.has(Bug::RecordsAfterRelease) {
            self.store.release_one(hold).await?;
            sleep(Duration::from_millis(5)).await;
            let again = Attempt::new(hold.clone(), Duration::from_secs(1));
            if let Outcome::Refused { .. } = self.store.acquire(&again).await? {
                // The loss is not even noticed.
                return Ok(HoldStatus::Held.into());
            }
        }
        self.store.release_recording(hold, record).await
    }
}

impl LockStore for Mutant {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let refused = Outcome::Refused {
            retry_after: Duration::from_secs(30),
        };
        let id = attempt.hold.id;
        // The answer from before the subscription is assumed to be still valid.
        if self.has(Bug::SleepsAfterSubscribing)
            && self.memory.lock().unwrap().subscribed.remove(&id)
        {
            return Ok(refused);
        }
        if self.has(Bug::DeadKeepTheirPlace) && self.stands_behind(attempt) {
            return Ok(refused);
        }
        let mut attempt = attempt.clone();
        if let LockMode::Permit(limit) = attempt.hold.mode {
            if self.has(Bug::DeadKeepTheirPermits) {
                attempt.lease = Duration::from_secs(86_400);
            }
            let held = self.store.inspect(&attempt.hold.key).await?.holders.len();
            if self.has(Bug::LimitForgetsHolders) && held == limit.get() as usize {
                let more = limit.checked_add(limit.get());
                self.store.set_permits(&attempt.hold.key, more).await?;
            }
        }
        let outcome = self.store.acquire(&attempt).await?;
        if matches!(outcome, Outcome::Granted { .. }) {
            self.remember(&attempt.hold);
        }
        self.answering.pass().await;
        Ok(outcome)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        if renewals.iter().all(|renewal| renewal.lease.is_none()) {
            return self.store.renew(renewals).await;
        }
        self.renewing.pass().await;
        let mut statuses = self.store.renew(renewals).await?;
        for (renewal, status) in renewals.iter().zip(&mut statuses) {
            let (hold, lease) = (&renewal.hold, renewal.lease.expect("none is a check"));
            if self.has(Bug::RenewalCreates) && *status == HoldStatus::Gone {
                let attempt = Attempt::new(hold.clone(), lease);
                self.store.acquire(&attempt).await?;
                *status = HoldStatus::Held;
            }
            if self.has(Bug::OneTimeToLive) && hold.mode == LockMode::Read {
                let others = self.granted(&hold.key, LockMode::Read).into_iter();
                let others: Vec<_> = others.map(|hold| Renewal::new(hold, lease)).collect();
                self.store.renew(&others).await?;
            }
        }
        Ok(statuses)
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        let mut released = Vec::with_capacity(releases.len());
        for release in releases {
            released.push(match &release.record {
                None => self.end(&release.hold).await?,
                Some(record) => self.end_recording(&release.hold, record).await?,
            });
        }
        Ok(released)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        if self.has(Bug::NothingIsTakenBack) {
            return Ok(());
        }
        let id = attempt.hold.id;
        self.leave_queue(id);
        self.store.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.subscribing.pass().await;
        let id = attempt.hold.id;
        self.memory.lock().unwrap().subscribed.insert(id);
        self.store.subscribe(attempt).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.store.record(key).await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

/// An attempt that does not wait.
pub(super) fn attempt(hold: Hold, lease: Duration) -> Attempt {
    Attempt::new(hold, lease)
}
