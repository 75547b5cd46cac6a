#![doc = include_str!("../README.md")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Attempt, Capabilities, Feature, Inspect, LockStore};
use tower_distributed_lock::{LockKey, LockMode};

mod ballot;
mod end;
mod grants;
mod inspect;
mod ledger;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod wakeups;

use ballot::{Effect, Vote, Votes, no_majority};
use ledger::{Entry, Left, Proof, after};
use table::Table;
use wakeups::Pace;

/// How long one store may take; [`QuorumStore::store_timeout`] changes it.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

/// Locks in a majority of several independent stores.
///
/// It asks all stores at the same time, and answers as soon as the result is certain, so that a dead store delays no caller. When a
/// majority has granted, the other stores get the same time again, 5 ms at least: only the stores that granted before the answer
/// count when the hold is confirmed. Whatever else was granted is given back in the background, after the store has answered and never
/// before.
///
/// Clones share everything except their settings. Each client may have a `QuorumStore` of its own, on the same stores; a client's
/// holds belong to the `QuorumStore` that took them. It must be used inside a Tokio runtime, on which a task goes on with each question
/// after its answer.
///
/// # Errors
///
/// Every operation fails without the majority that it needs: with [`Unanswered`] if any store may have been changed, with
/// [`Unreachable`] or [`Transient`] only if certainly none was, and with [`Conflict`] or [`Refused`] if a majority answers so.
///
/// # Cancel safety
///
/// As for every [`LockStore`], drive the futures to their end: until it has its answer, a question is asked by its caller.
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
/// No mutex is held for an await, except for the turns of a hold in each store. The mutex of a table is taken before that of an entry
/// in it.
struct Shared<S> {
    stores: Box<[S]>,
    /// What each store can do, read once.
    members: Box<[Capabilities]>,
    /// What all of them can.
    can: Capabilities,
    /// Every hold that was asked for, and has not ended.
    ledger: Table<Hold, Entry>,
    /// When those who wait for a key ask again.
    paces: Table<LockKey, Pace>,
    /// The questions, which go on to the end after their answers: some stores are slow, or something is taken back.
    running: TaskTracker,
}

/// This number of stores does not form a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a quorum needs an odd number of stores, 3 at least, not {0}: two survive the loss of none, and a fourth one tolerates no more \
     failures than three"
)]
pub struct InvalidQuorum(usize);

impl<S: LockStore> QuorumStore<S> {
    /// A store made of `stores`: an odd number of them, three at least.
    ///
    /// # Errors
    ///
    /// [`InvalidQuorum`] for any other number.
    pub fn new(stores: impl IntoIterator<Item = S>) -> Result<Self, InvalidQuorum> {
        let stores: Box<[S]> = stores.into_iter().collect();
        if stores.len() < 3 || stores.len().is_multiple_of(2) {
            return Err(InvalidQuorum(stores.len()));
        }
        let members: Box<[_]> = stores.iter().map(LockStore::capabilities).collect();
        Ok(Self {
            shared: Arc::new(Shared {
                stores,
                can: in_all(&members),
                members,
                ledger: Table::new(Entry::is_needed),
                paces: Table::new(|_| false),
                running: TaskTracker::new(),
            }),
            store_timeout: STORE_TIMEOUT,
            inspected: |_, can| can,
        })
    }
}

/// What a quorum of these members can do: what each can, without what needs one order over all stores.
fn in_all(members: &[Capabilities]) -> Capabilities {
    let modes = [LockMode::Reentrant, LockMode::Read, LockMode::Write];
    let mut can = Capabilities::new(modes)
        .without(Feature::Mode(LockMode::Fair), "a quorum of stores has no common queue: use `LockMode::Reentrant`, or a single store for `LockMode::Fair`")
        .without(Feature::Mode(LockMode::permits(1)), "a quorum of stores has no permits: a majority of three stores with 2 permits each would grant 3. Use a single store for `LockMode::Permit`")
        .without(Feature::Fencing, "a quorum of stores has no common counter: fencing tokens need a single store")
        .without(Feature::Inspection, "call `QuorumStore::inspected`, if its stores can be inspected")
        .without(Feature::Records, "a quorum of stores keeps no records: a minority that answered a release may have left its record, so that it is unknown whether the work is recorded");
    for mode in modes.map(Feature::Mode) {
        if let Some(missing) = members.iter().find_map(|member| member.check(mode).err()) {
            can = can.without(missing.feature(), missing.reason());
        }
    }
    can
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

impl<S: LockStore> QuorumStore<S> {
    /// Sets how long a store may take to answer before it counts as silent; 500 ms by default. For an attempt, a quarter of the
    /// lease limits it, because an attempt that waits for a silent store must still get most of its lease.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Asks every store, answers when the votes decide, and goes on with the others in the background. Without a decision the
    /// question fails.
    async fn ask<T, F, R>(
        &self,
        effect: Effect,
        ask: impl Fn(Self, usize) -> F,
        decide: impl Fn(&Votes<T>) -> Option<R>,
    ) -> Vote<R>
    where
        F: Future<Output = Vote<T>> + Send + 'static,
        T: Send + 'static,
    {
        let mut ballot = self.ballot(ask);
        let decided = |votes: &Votes<T>| decide(votes).is_some();
        ballot.wait(self.deadline(None), decided).await;
        self.shared.running.spawn(ballot.rest());
        decide(&ballot.votes).ok_or_else(|| no_majority(&ballot.votes, effect))
    }

    /// Withdraws in the background what is not wanted of the hold of `attempt`.
    fn clear(&self, attempt: &Attempt, entry: &Arc<Entry>) {
        let mut clearing =
            self.ballot(|quorum, at| quorum.clear_in(at, attempt.clone(), entry.clone(), false));
        self.shared.running.spawn(clearing.rest());
    }

    /// What is known of a hold, which is remembered for this lease; `unknown` if nothing is.
    fn entry(&self, hold: &Hold, unknown: (Left, Proof), lease: Duration) -> Arc<Entry> {
        let new = || Entry::new(self.shared.stores.len(), unknown);
        let entry = self.shared.ledger.get(hold.clone(), new);
        entry.known().remember(lease);
        entry
    }

    fn pace(&self, key: &LockKey) -> Arc<Pace> {
        self.shared.paces.get(key.clone(), Pace::new)
    }

    fn require(&self, feature: Feature) -> Result<(), StoreError> {
        let has = self.shared.can.check(feature);
        has.map_err(|missing| StoreError::new(StoreErrorKind::Refused, missing))
    }

    /// The deadline for answers to a question that is sent now, about a lease if it is one.
    fn deadline(&self, lease: Option<Duration>) -> Instant {
        let quarter = lease.map_or(Duration::MAX, |lease| lease / 4);
        after(Instant::now(), self.store_timeout.min(quarter))
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
            .field("stores", &self.shared.stores.len())
            .field("store_timeout", &self.store_timeout)
            .finish_non_exhaustive()
    }
}
