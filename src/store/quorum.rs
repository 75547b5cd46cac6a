//! Locks in a majority of several stores: Redlock.
//!
//! [`QuorumStore`] is a store made of stores. A hold exists in every store that granted it, and counts while more than half of
//! all stores carry it. So it outlives the loss of any minority.
//!
//! # What a quorum gives
//!
//! 1. **Availability.** Locks are taken, renewed, confirmed and released while a majority of the stores answers.
//! 2. **Lease exclusion** (S1) while a majority of all stores carries the hold and their clocks run at about the same rate. A
//!    store that restarts without its data has lost its holds: a hold that all of five stores granted survives two such losses,
//!    and one that was granted while two were down survives none. Stores that persist before they answer, or that stay down for
//!    the longest lease before they restart, lose nothing.
//! 3. **Confirmed exclusion** (S5) without clocks. A hold is confirmed by a majority that has carried it all the time: only
//!    stores that granted before [`acquire`](LockStore::acquire) answered count. A store that was late or refused gets a hold
//!    that lives longer than 100 ms, and counts when the others have proved that there was no gap.
//! 4. **No fencing tokens** (S6). Counters of independent stores do not agree on one order, so a quorum cannot distinguish a late
//!    holder from the next one: use it for efficiency, or for work whose effect waits for the confirmation.
//! 5. **No fair queue, no line.** Each store would have its own order.
//! 6. **No permits.** A majority of three stores with 2 permits each would grant 3.
//! 7. **No records.** A release that only a minority has answered may have left its record there, so it would be unknown whether
//!    the work is recorded.
//!
//! The phases of a read-write lock hold in each store; across stores they may differ for a moment, which delays a side, but never
//! starves it.
//!
//! # Sources
//!
//! The algorithm is that of [Distributed Locks with Redis]; the limits are those that Martin Kleppmann named in [How to do
//! distributed locking] (2016): an answer that comes late, a jumping clock, a forgotten hold.
//!
//! # Deployment
//!
//! The stores must fail independently: separate machines, no replication between them. Every process must use the same stores.
//!
//! [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//! [How to do distributed locking]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use super::{
    Attempt, Capabilities, Feature, HoldStatus, LockStore, Outcome, Release, Released, Renewal,
    Unsupported, Wakeups, inspect::missing, several,
};
use crate::audit::Audit;
use crate::error::StoreError;
use crate::limits::after;
use crate::lock::{Hold, LockKey, LockMode};
use crate::shared_table::SharedTable;
use crate::sync::Mutex;

mod acquire;
mod carriers;
mod hold;
mod inspect;
mod majority;
mod members;
mod release;
mod renew;
mod subscribe;
mod take_back;
#[cfg(test)]
mod tests;
mod vote_count;

use hold::{QuorumHold, RefusedVote};
use members::Members;

/// How long one store may take; [`QuorumStore::store_timeout`] changes it.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

/// How much of a lease must be left; [`QuorumStore::min_validity`] changes it.
const MIN_VALIDITY: Duration = Duration::from_millis(1);

const NO_QUEUE: &str = "a quorum of stores has no common queue: use `LockMode::Reentrant`, or a single store for `LockMode::Fair`";
const NO_PERMITS: &str = "a quorum of stores has no permits: a majority of three stores with 2 permits each would grant 3. Use a single store for \
                          `LockMode::Permit`";
const NO_COUNTER: &str =
    "a quorum of stores has no common counter: fencing tokens need a single store";

/// Locks in a majority of several independent stores.
///
/// It asks all stores at the same time, and answers as soon as the result is certain: a dead store delays no caller. When a
/// majority has granted, the other stores have the same time again, at least 5 ms, so that their grants count when the hold is
/// confirmed. It does not wait for a store that took longer the last time. Every question about a hold is awaited and cleaned up in
/// the background: a grant that arrives after the attempt has failed is released, after the store has answered and never before.
///
/// [`LockMode::Fair`], [`LockMode::Permit`] and fencing tokens are refused by its [`capabilities`](LockStore::capabilities), and
/// so are records; the [module](self) has the reasons, and the other properties of a quorum. Clones share everything except
/// their settings. Each client may have a `QuorumStore` of its own; a client's holds belong to the `QuorumStore` that took them.
///
/// It must be used inside a Tokio runtime, on which it spawns one task for each question to a store.
///
/// # Errors
///
/// Every operation fails without the majority that it needs: [`Unanswered`] if any store may have been changed, [`Unreachable`]
/// or [`Transient`] only if certainly none was, [`Conflict`] and [`Refused`] if a majority answers so.
///
/// # Cancel safety
///
/// As for every [`LockStore`], drive the futures to their end.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_distributed_lock::{LockClient, MemoryStore, QuorumStore};
///
/// let stores = [MemoryStore::new(), MemoryStore::new(), MemoryStore::new()]; // five `RedisStore`s, rather
/// let locks = LockClient::new(QuorumStore::new(stores)?);
/// let guard = locks.lock("account:42").await?;
/// guard.release().await?; // `Ok`: a majority carried the lock until now
/// # Ok(())
/// # }
/// ```
///
/// [`Unanswered`]: crate::error::StoreErrorKind::Unanswered
/// [`Unreachable`]: crate::error::StoreErrorKind::Unreachable
/// [`Transient`]: crate::error::StoreErrorKind::Transient
/// [`Conflict`]: crate::error::StoreErrorKind::Conflict
/// [`Refused`]: crate::error::StoreErrorKind::Refused
pub struct QuorumStore<S> {
    shared: Arc<QuorumShared<S>>,
    store_timeout: Duration,
    min_validity: Duration,
}

/// What the clones share. `holds` and `last_votes` have mutexes, and so has each value in them. None is taken under another, except
/// that of a hold under that of its table, or under that of a question ([`MajorityCall`](majority::MajorityCall)).
struct QuorumShared<S> {
    stores: Box<[S]>,
    /// The capabilities of each store, read once.
    capabilities: Box<[Capabilities]>,
    /// The stores that are slower than the others: no operation waits for them longer than needed.
    slow: Box<[AtomicBool]>,
    /// Every hold with an attempt, a grant or a clean-up under way.
    holds: SharedTable<Hold, Mutex<QuorumHold>>,
    /// The votes on the last attempt, for each key and mode with a listener: its wake-ups are filtered by them. A client passes
    /// the wake-ups of one attempt to the next attempt for the key, which has another id. So they belong to a key and a mode, and
    /// not to the hold that subscribed.
    last_votes: SharedTable<(LockKey, LockMode), Mutex<RefusedVote>>,
    /// The tasks with an operation under way in a store: a question whose majority has answered, or a clean-up.
    running: TaskTracker,
    /// For each store, the inspections that it has not answered in time.
    late_inspections: Box<[TaskTracker]>,
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
    /// More than any deployment needs.
    #[error("a quorum has at most {max} stores, not {0}", max = Members::MAX)]
    TooMany(usize),
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
            count if count > Members::MAX => return Err(InvalidQuorum::TooMany(count)),
            _ => {}
        }
        Ok(Self {
            shared: Arc::new(QuorumShared {
                capabilities: stores.iter().map(LockStore::capabilities).collect(),
                slow: stores.iter().map(|_| AtomicBool::new(false)).collect(),
                holds: SharedTable::new(|hold: &Mutex<QuorumHold>| hold.lock().is_needed()),
                last_votes: SharedTable::new(|_| false),
                running: TaskTracker::new(),
                late_inspections: stores.iter().map(|_| TaskTracker::new()).collect(),
                stores,
            }),
            store_timeout: STORE_TIMEOUT,
            min_validity: MIN_VALIDITY,
        })
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

    /// Sets how much of a lease must be left when a majority has granted, after the elapsed time and the clocks' drift (1 % and 2
    /// ms); 1 ms by default. A grant with less is given back, and fails as unanswered.
    #[must_use]
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = validity;
        self
    }

    fn count(&self) -> usize {
        self.shared.stores.len()
    }

    /// The number of stores in a majority.
    fn majority_count(&self) -> usize {
        self.count() / 2 + 1
    }

    fn all(&self) -> Members {
        Members::first(self.count())
    }

    /// The deadline for answers to a question that is sent now.
    fn deadline(&self) -> Instant {
        after(Instant::now(), self.store_timeout)
    }

    /// The same, for a question about a lease.
    fn until(&self, now: Instant, lease: Duration) -> Instant {
        after(now, self.store_timeout.min(lease / 4))
    }

    /// Awaits the answer of a store without a limit, and marks the store as slow if it takes too long.
    async fn timed<T>(&self, store: usize, until: Instant, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        match timeout_at(until, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                self.set_slow(store, true);
                answer.await
            }
        }
    }

    fn is_slow(&self, store: usize) -> bool {
        self.shared.slow[store].load(Ordering::Relaxed)
    }

    fn set_slow(&self, store: usize, slow: bool) {
        self.shared.slow[store].store(slow, Ordering::Relaxed);
    }
}

impl<S> Clone for QuorumStore<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            store_timeout: self.store_timeout,
            min_validity: self.min_validity,
        }
    }
}

impl<S> fmt::Debug for QuorumStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumStore")
            .field("stores", &self.count())
            .field("store_timeout", &self.store_timeout)
            .field("min_validity", &self.min_validity)
            .finish_non_exhaustive()
    }
}

impl<S: LockStore> LockStore for QuorumStore<S> {
    /// Without a place in line: each store has a line of its own, and if different attempts were first in different stores, none
    /// would have a majority.
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.acquire_majority(&attempt.clone().in_line(false)).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.renew_majority(renewals).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        if releases.iter().any(|release| release.record.is_some()) {
            return Err(missing(Feature::Records));
        }
        several::of_each(
            releases
                .iter()
                .map(|release| self.release_majority(&release.hold)),
        )
        .await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.withdraw_majority(&attempt.clone().in_line(false), unanswered)
            .await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.subscribe_majority(&attempt.clone().in_line(false))
            .await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(self.look_at_all().await)
    }

    /// The capabilities that every store has, without those that need one order over all stores. Holds are renewed on the runtime
    /// of the first store that has one.
    fn capabilities(&self) -> Capabilities {
        let stores = &self.shared.capabilities;
        let modes = [LockMode::Reentrant, LockMode::Read, LockMode::Write];
        let mut quorum = Capabilities::new(modes)
            .without(Feature::Mode(LockMode::Fair), NO_QUEUE)
            .without(Feature::Mode(LockMode::permits(1)), NO_PERMITS)
            .without(Feature::Fencing, NO_COUNTER);
        for mode in modes.map(Feature::Mode) {
            if let Some(missing) = stores.iter().find_map(|store| store.check(mode).err()) {
                quorum = quorum.without(missing.feature(), missing.reason());
            }
        }
        let mut systems = stores.iter().map(|store| store.for_traces().system);
        if let Some(Some(system)) = systems.next()
            && systems.all(|other| other == Some(system))
        {
            quorum = quorum.database(system);
        }
        if stores.iter().all(|store| store.inspector().is_ok()) {
            quorum = quorum.inspect(self.clone());
        }
        let (shared, limit) = (self.shared.clone(), self.store_timeout);
        let ending = shared.clone();
        quorum
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
