//! Locks in this process's memory.
//!
//! [`MemoryStore`] is the embedded default, and the executable specification of [`LockStore`]: every other store must give
//! the same answers.
//!
//! The state machine of a key (`state`) decides each answer. It gets the time as an argument, and contains neither mutex
//! nor task. Keys are distributed over shards (`shard`), each under one mutex that is never held across an await. There is
//! no task and no timer: each use of a key reads the clock, and a sweep, which new keys cause, removes keys that are not
//! used again.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{
    Attempt, Capabilities, HoldStatus, LATENESS, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Wakeups, Want, check_record, several,
};
use crate::audit::{Audit, Deployment};
use crate::error::StoreError;
use crate::lock::{Hold, LockKey};
use crate::sync::{Mutex, MutexGuard};

mod channel;
mod entries;
mod inspect;
mod records;
mod shard;
mod state;
#[cfg(test)]
mod tests;
mod waiters;

use channel::Channel;
use inspect::Processes;
use records::Records;
use shard::{Key, Shard};

/// The number of shards: enough that threads rarely contend, and few enough to be cheap. One in an exploration, where each mutex is a
/// point at which others run.
const SHARDS: usize = if cfg!(shuttle) { 1 } else { 64 };

/// Locks in this process's memory: for one process, for development, for tests.
///
/// Clones share their holds, like several clients of one server; the holds end with the last clone. It serves every mode,
/// inside a runtime or outside, and fails only with [`Conflict`](crate::error::StoreErrorKind::Conflict), or with
/// [`Refused`](crate::error::StoreErrorKind::Refused) for an attempt that was withdrawn before. On tokio's paused clock its
/// leases follow that clock.
///
/// It keeps more than the contract of [`LockStore`], for tests:
///
/// 1. Every operation takes effect and completes at the first poll of its future, which makes all of them cancel safe.
/// 2. Operations on one key take effect one after the other. A batch is one operation for each member.
/// 3. `retry_after` is exact and never zero: the rest of the present holder's lease (of several readers', the longest; of
///    permits, until one comes free); if the key has no holder, the rest of the time for which the waiters that go first
///    may be silent.
/// 4. Fencing tokens rise as long as the store exists, whatever the retention; this costs one number. They are never behind
///    the wall clock (in microseconds), and do not follow it when it is set back.
/// 5. Records of finished work take a bounded amount of memory, see [`with_record_limit`](Self::with_record_limit).
///
/// ```
/// # use tower_distributed_lock::{LockClient, MemoryStore};
/// let store = MemoryStore::new();
/// // Two clients of one store exclude each other, like two processes of one Redis.
/// let (one, other) = (LockClient::new(store.clone()), LockClient::new(store));
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<MemoryShared>,
}

/// The state that all clones share. Each mutex protects its value, and is held for a bounded number of keys. No two shards are locked
/// at a time. The mutex of the records may be taken under that of a shard, never the other way round. That of the processes is taken
/// alone.
struct MemoryShared {
    shards: Box<[Mutex<Shard>]>,
    records: Mutex<Records>,
    processes: Mutex<Processes>,
}

impl MemoryStore {
    /// An empty store, with room for 64 MiB of records.
    pub fn new() -> Self {
        Self::with_record_limit(records::DEFAULT_LIMIT)
    }

    /// An empty store whose records of finished work (`IdempotencyLayer`) take at most about `bytes` of memory, including
    /// their keys.
    ///
    /// If there is no room for a new record, the oldest ones are dropped of the [scope](Record::scope) that takes the most room, such
    /// as a tenant. A repeat of a request whose record was dropped runs again: choose `bytes` for all responses of one retention. The
    /// newest record is kept, whatever its size.
    pub fn with_record_limit(bytes: usize) -> Self {
        Self {
            shared: Arc::new(MemoryShared {
                shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
                records: Mutex::new(Records::new(bytes)),
                processes: Mutex::default(),
            }),
        }
    }

    /// Whether the store has now no hold, no waiting attempt, no listener, no record and no withdrawal. Entries of processes
    /// do not count.
    ///
    /// It checks every key: it is for tests that assert that a program leaves nothing.
    pub fn is_empty(&self) -> bool {
        let shards = self.shared.shards.iter();
        let now = Instant::now();
        shards.into_iter().all(|shard| shard.lock().is_empty(now))
            && self.shared.records.lock().is_empty(now)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl LockStore for MemoryStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let mut shard = self.shard(&attempt.hold.key);
        // Read under the mutex, so that a later decision has a later time.
        let (outcome, signals) = shard.acquire(attempt, Instant::now())?;
        drop(shard);
        signals.send();
        Ok(outcome)
    }

    /// If one of all is in use, none of the others is taken for a moment.
    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let all = attempts.iter().filter(|_| want == Want::All);
        for (index, attempt) in all.enumerate() {
            let look = |key: &mut Key, now| key.state.evaluate(attempt, now);
            if let Outcome::Refused { retry_after } = self.change(&attempt.hold.key, look)? {
                let index = Some(index);
                return Ok(SeveralOutcome::Refused { index, retry_after });
            }
        }
        several::one_by_one(self, attempts, want).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let renew = |Renewal { hold, lease }: &Renewal| {
            let held = self.change(&hold.key, |key, now| match lease {
                Some(lease) => key.state.renew(hold, *lease, now),
                None => key.state.holds(hold),
            });
            match held {
                true => HoldStatus::Held,
                false => HoldStatus::Gone,
            }
        };
        Ok(renewals.iter().map(renew).collect())
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        check_record(hold, record)?;
        Ok(self.release_now(hold, record))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all().inspect(self.clone())
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(Audit::new(Deployment::Memory))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        Ok(self.shared.records.lock().get(key, Instant::now()))
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let memory = unanswered.then(|| attempt.lease.max(LATENESS));
        let signals = self.change(&attempt.hold.key, |key, now| {
            let held = key.state.holds(&attempt.hold);
            let wake = key.state.withdraw(attempt, memory, now);
            match held {
                true => key.ended(attempt.hold.mode, &wake, now).0,
                false => key.signals(&wake),
            }
        });
        signals.send();
        Ok(())
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let key = &attempt.hold.key;
        let channel = Channel::of(attempt);
        let signal = self.change(key, |key, _| key.listeners.join(channel));
        let wakes = signal.subscribe();
        let subscription = MemorySubscription {
            store: self.clone(),
            key: key.clone(),
            signal,
        };
        Ok(Wakeups::new(wakes, subscription))
    }
}

impl MemoryStore {
    /// [`LockStore::release`] of one hold, whose record is checked.
    pub(super) fn release_now(&self, hold: &Hold, record: Option<&Record>) -> Released {
        let released = self.change(&hold.key, |key, now| {
            let wake = key.state.release(hold)?;
            if let Some(record) = record {
                // The shard is still locked, so the record exists before another holder of the key can begin.
                self.shared.records.lock().keep(&hold.key, record, now);
            }
            Some(key.ended(hold.mode, &wake, now))
        });
        let Some((signals, notified)) = released else {
            return Released::from(HoldStatus::Gone).in_line(true);
        };
        signals.send();
        Released::new(HoldStatus::Held, notified).in_line(true)
    }

    /// Changes the state of `key` as of now.
    fn change<T>(&self, key: &LockKey, change: impl FnOnce(&mut Key, Instant) -> T) -> T {
        let mut shard = self.shard(key);
        // Read under the mutex, so that a later decision has a later time.
        let now = Instant::now();
        shard.change(key, now, |key| change(key, now))
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, Shard> {
        self.shared.shards[key.place_among(SHARDS)].lock()
    }
}

/// A listener of a key, removed on drop.
struct MemorySubscription {
    store: MemoryStore,
    key: LockKey,
    signal: watch::Sender<()>,
}

impl Drop for MemorySubscription {
    fn drop(&mut self) {
        let Self { store, key, signal } = self;
        store.change(key, |key, _| key.listeners.leave(signal));
    }
}
