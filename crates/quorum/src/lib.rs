#![doc = include_str!("../README.md")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use tower_distributed_lock::audit::Audit;
use tower_distributed_lock::store::{
    Attempt, Capabilities, Feature, HoldStatus, Inspect, Outcome, Release, Released, Renewal,
    Unsupported, Wakeups,
};
use tower_distributed_lock::{LockKey, LockMode, LockStore, StoreError, StoreErrorKind};

mod acquire;
mod ballot;
mod end;
mod inspect;
mod ledger;
mod renew;
mod table;
#[cfg(test)]
mod tests;
mod wakeups;
mod watched;

use acquire::is_unanswered;
use ledger::{Ledger, after};
use table::Table;
use wakeups::Room;

/// How long one store may take; [`QuorumStore::store_timeout`] changes it.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

const NO_QUEUE: &str = "a quorum of stores has no common queue: use `LockMode::Reentrant`, or a single store for `LockMode::Fair`";
const NO_PERMITS: &str = "a quorum of stores has no permits: a majority of three stores with 2 permits each would grant 3. Use a single store for \
                          `LockMode::Permit`";
const NO_COUNTER: &str =
    "a quorum of stores has no common counter: fencing tokens need a single store";
const NO_RECORDS: &str = "a quorum of stores keeps no records: a minority that answered a release may have left its record, so that it is \
                          unknown whether the work is recorded";
const NO_INSPECTION: &str = "call `QuorumStore::inspected`, if its stores can be inspected";

/// Locks in a majority of several independent stores.
///
/// It asks all stores at the same time, and answers as soon as the result is certain, so that a dead store delays no caller. When a
/// majority has granted, the other stores get the same time again, 5 ms at least: only the stores that granted before the answer
/// count when the hold is confirmed. Whatever else was granted is given back, after the store has answered and never before.
///
/// Clones share everything except their settings. Each client may have a `QuorumStore` of its own, on the same stores; a client's
/// holds belong to the `QuorumStore` that took them. It must be used inside a Tokio runtime, on which it spawns a task for each
/// question to a store.
///
/// # Errors
///
/// Every operation fails without the majority that it needs: with [`Unanswered`] if any store may have been changed, with
/// [`Unreachable`] or [`Transient`] only if certainly none was, and with [`Conflict`] or [`Refused`] if a majority answers so.
///
/// # Cancel safety
///
/// As for every [`LockStore`], drive the futures to their end. An `acquire` that is dropped all the same is taken back.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_distributed_lock::{LockClient, MemoryStore};
/// use tower_distributed_lock_quorum::QuorumStore;
///
/// let stores = [MemoryStore::new(), MemoryStore::new(), MemoryStore::new()]; // five `RedisStore`s, rather
/// let locks = LockClient::new(QuorumStore::new(stores)?);
/// let guard = locks.lock("account:42").await?;
/// guard.release().await?; // `Ok`: a majority carried the lock until now
/// # Ok(())
/// # }
/// ```
///
/// [`Unanswered`]: StoreErrorKind::Unanswered
/// [`Unreachable`]: StoreErrorKind::Unreachable
/// [`Transient`]: StoreErrorKind::Transient
/// [`Conflict`]: StoreErrorKind::Conflict
/// [`Refused`]: StoreErrorKind::Refused
pub struct QuorumStore<S> {
    shared: Arc<Shared<S>>,
    store_timeout: Duration,
    /// Adds the inspection to the capabilities, if the stores can be inspected.
    inspected: fn(&Self, Capabilities) -> Capabilities,
}

/// What the clones share.
///
/// No mutex is held for an await. They are taken in this order: a ballot's; that of a table (the ledger, the rooms); that of one
/// entry in it.
struct Shared<S> {
    stores: Box<[S]>,
    /// What each store can do. Read once.
    capabilities: Box<[Capabilities]>,
    ledger: Ledger,
    /// Those who wait, by key and mode.
    rooms: Table<(LockKey, LockMode), Room>,
    /// The tasks that have asked a store and go on to the end: the question was decided without it, or something is taken back.
    running: TaskTracker,
}

/// Why stores do not form a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidQuorum {
    /// One or two stores do not survive the loss of any.
    #[error("a quorum needs at least 3 stores, not {0}: fewer survive the loss of none")]
    TooFew(usize),
    /// With one store more, the same number of losses is survived.
    #[error(
        "a quorum needs an odd number of stores, not {0}: the last one adds a store that can fail, and tolerates no more failures"
    )]
    Even(usize),
}

impl<S: LockStore> QuorumStore<S> {
    /// A store made of `stores`: an odd number of them, three at least.
    ///
    /// # Errors
    ///
    /// [`InvalidQuorum`] for any other number.
    pub fn new(stores: impl IntoIterator<Item = S>) -> Result<Self, InvalidQuorum> {
        let stores: Box<[S]> = stores.into_iter().collect();
        match stores.len() {
            count @ ..3 => return Err(InvalidQuorum::TooFew(count)),
            count if count % 2 == 0 => return Err(InvalidQuorum::Even(count)),
            _ => {}
        }
        Ok(Self {
            shared: Arc::new(Shared {
                capabilities: stores.iter().map(LockStore::capabilities).collect(),
                ledger: Ledger::new(),
                rooms: Table::new(|_| false),
                running: TaskTracker::new(),
                stores,
            }),
            store_timeout: STORE_TIMEOUT,
            inspected: |_, can| can.without(Feature::Inspection, NO_INSPECTION),
        })
    }
}

impl<S: Inspect> QuorumStore<S> {
    /// Lets an operator inspect the quorum, by [`LockClient::admin`]: who holds a key in a majority of the stores, and breaking a
    /// lock in all of them. Nothing is listed.
    ///
    /// [`LockClient::admin`]: tower_distributed_lock::LockClient::admin
    #[must_use]
    pub fn inspected(mut self) -> Self {
        self.inspected = |quorum, can| can.inspect(quorum.clone());
        self
    }
}

impl<S> QuorumStore<S> {
    /// Sets how long a store may take to answer before it counts as silent; 500 ms by default. For an attempt, a quarter of the
    /// lease limits it, because an attempt that waits for a silent store must still get most of its lease.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// The number of stores.
    fn stores(&self) -> usize {
        self.shared.stores.len()
    }

    /// The deadline for answers to a question that is sent now.
    fn deadline(&self) -> Instant {
        after(Instant::now(), self.store_timeout)
    }

    /// The same, for a question about a lease.
    fn until(&self, now: Instant, lease: Duration) -> Instant {
        after(now, self.store_timeout.min(lease / 4))
    }
}

impl<S> Clone for QuorumStore<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            ..*self
        }
    }
}

impl<S> fmt::Debug for QuorumStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumStore")
            .field("stores", &self.stores())
            .field("store_timeout", &self.store_timeout)
            .finish_non_exhaustive()
    }
}

impl<S: LockStore> LockStore for QuorumStore<S> {
    /// Without a place in line: each store has a line of its own, and if different attempts were first in different stores, none
    /// would have a majority.
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.acquire_majority(attempt.clone().in_line(false)).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.renew_majority(renewals).await
    }

    /// Each hold has its own decision: one that has none is [`HoldStatus::Unknown`], unless none has one.
    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        if releases.iter().any(|release| release.record.is_some()) {
            return Err(refused(NO_RECORDS));
        }
        let holds = releases.iter().map(|release| &release.hold);
        let mut answers = join_all(holds.map(|hold| self.release_majority(hold))).await;
        if answers.iter().all(Result::is_err) {
            // A release that may have had an effect comes first.
            answers.sort_by_key(|answer| !answer.as_ref().is_err_and(is_unanswered));
            return answers.into_iter().collect();
        }
        let unknown = |_| HoldStatus::Unknown.into();
        let answers = answers.into_iter();
        Ok(answers
            .map(|answer| answer.unwrap_or_else(unknown))
            .collect())
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let attempt = attempt.clone().in_line(false);
        self.withdraw_majority(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let attempt = attempt.clone().in_line(false);
        self.subscribe_majority(attempt).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(self.audit_all().await)
    }

    /// What every store can do, without what needs one order over all stores. Holds are renewed on the runtime of the first store
    /// that has one.
    fn capabilities(&self) -> Capabilities {
        let stores = &self.shared.capabilities;
        let modes = [LockMode::Reentrant, LockMode::Read, LockMode::Write];
        let mut quorum = Capabilities::new(modes)
            .without(Feature::Mode(LockMode::Fair), NO_QUEUE)
            .without(Feature::Mode(LockMode::permits(1)), NO_PERMITS)
            .without(Feature::Fencing, NO_COUNTER)
            .without(Feature::Records, NO_RECORDS);
        for mode in modes.map(Feature::Mode) {
            if let Some(missing) = stores.iter().find_map(|store| store.check(mode).err()) {
                quorum = quorum.without(missing.feature(), missing.reason());
            }
        }
        let (shared, ending) = (self.shared.clone(), self.shared.clone());
        let limit = self.store_timeout;
        (self.inspected)(self, quorum)
            .renewal_runtime(move || shared.capabilities.iter().find_map(Capabilities::runtime))
            .on_shutdown(move || {
                let shared = ending.clone();
                // Only a closed tracker is waited for. Tasks may be spawned all the same.
                shared.running.close();
                async move {
                    // A store that does not answer in time does not block the caller.
                    drop(timeout(limit, shared.running.wait()).await);
                    join_all(shared.capabilities.iter().map(Capabilities::ended)).await;
                }
            })
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        let mut partition = 0;
        for store in &self.shared.stores {
            // Stores with partitions have the same ones.
            partition = partition.max(store.partition(key)?);
        }
        Ok(partition)
    }
}

fn refused(why: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, why)
}
