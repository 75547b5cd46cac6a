//! Who holds and who waits in this process, for a dashboard.

use std::time::Duration;
use std::vec;

use tokio::time::Instant;

use super::LockClient;
use crate::lock::{FencingToken, HoldId, Lease, LockKey, LockMode};
use crate::table::{HoldView, KeyView, WaiterView};

/// One key that requests of this process hold or wait for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeySnapshot {
    /// Its name.
    pub key: LockKey,
    /// The holds of this process in the store, the oldest first. Readers and permits may have several.
    pub holds: Vec<HoldSnapshot>,
    /// The requests that wait, in the order of their arrival.
    pub waiters: Vec<WaiterSnapshot>,
}

/// One hold of this process.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HoldSnapshot {
    /// Its id in the store.
    pub id: HoldId,
    /// The mode that was granted.
    pub mode: LockMode,
    /// The route of the present holder, or its [`label`](crate::LockRequest::label).
    pub route: Option<&'static str>,
    /// How long the present holder has had it.
    pub held: Duration,
    /// Its lease.
    pub lease: Lease,
    /// The rest of its lease, unless it is renewed.
    pub remaining: Duration,
    /// The number of guards that share it.
    pub guards: usize,
    /// Its token, if one was asked for.
    pub token: Option<FencingToken>,
    /// Whether it is on its way out.
    pub state: HoldState,
}

/// The state of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// Its guards hold it.
    Held,
    /// The store has not confirmed its release yet.
    Releasing,
    /// Its guards do not hold it any more, and may not know yet.
    Lost,
}

/// One request that waits in this process.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaiterSnapshot {
    /// The mode that it asks for.
    pub mode: LockMode,
    /// The route of the request, or its [`label`](crate::LockRequest::label).
    pub route: Option<&'static str>,
    /// How long it has waited.
    pub waited: Duration,
    /// Whether it has a place in the store. The others of its process wait behind it.
    pub in_store: bool,
}

/// The keys in use, read while it is iterated. See [`LockClient::snapshot`].
#[derive(Debug)]
#[must_use = "a snapshot reads nothing until it is iterated"]
pub struct Snapshot {
    locks: LockClient,
    next_page: usize,
    /// When it was made.
    at: Instant,
    page: vec::IntoIter<KeyView>,
}

impl LockClient {
    /// Who holds and who waits in this process: every key in use, in no particular order. For dashboards and for the log of a
    /// program that hangs. [`LockAdmin`](crate::LockAdmin) sees the holders of all processes.
    ///
    /// The keys are read in pages while the snapshot is iterated, so that the client's requests wait for one page at most. So each
    /// page is of a slightly later instant, and a key may come or go meanwhile. Times count up to the call. With very many keys, iterate where
    /// some milliseconds of work delay no request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let guard = locks.lock("invoice:7").label("/invoices/{id}").await?;
    /// for key in locks.snapshot() {
    ///     for hold in key.holds {
    ///         println!("{}: held for {:?} by {:?}", key.key, hold.held, hold.route);
    ///     }
    /// }
    /// # assert_eq!(locks.snapshot().count(), 1);
    /// # guard.release().await
    /// # }
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            locks: self.clone(),
            next_page: 0,
            at: Instant::now(),
            page: Vec::new().into_iter(),
        }
    }

    /// The same of one key; `None` if no request of this process uses it.
    pub fn snapshot_of(&self, key: impl Into<LockKey>) -> Option<KeySnapshot> {
        let seen = self.inner.core.table.view_of(&self.named(key.into()))?;
        Some(self.shown(seen, Instant::now()))
    }

    fn shown(&self, seen: KeyView, now: Instant) -> KeySnapshot {
        let mut holds = seen.holds;
        holds.sort_by_key(|hold| hold.since);
        let mut waiters = seen.waiters;
        // Requests of one mode remain in the order of their line.
        waiters.sort_by_key(|waiter| waiter.since);
        let shown = |waiter: WaiterView| WaiterSnapshot {
            mode: waiter.mode,
            route: waiter.route.template(),
            waited: now.saturating_duration_since(waiter.since),
            in_store: waiter.in_store,
        };
        KeySnapshot {
            key: seen.key,
            holds: holds.iter().map(|hold| hold_shown(hold, now)).collect(),
            waiters: waiters.into_iter().map(shown).collect(),
        }
    }
}

fn hold_shown(hold: &HoldView, now: Instant) -> HoldSnapshot {
    HoldSnapshot {
        id: hold.id,
        mode: hold.mode,
        route: hold.route.template(),
        held: now.saturating_duration_since(hold.since),
        lease: hold.lease,
        remaining: hold.deadline.saturating_duration_since(now),
        guards: hold.guards,
        token: hold.token,
        state: if hold.is_lost {
            HoldState::Lost
        } else {
            HoldState::Held
        },
    }
}

impl Iterator for Snapshot {
    type Item = KeySnapshot;

    fn next(&mut self) -> Option<KeySnapshot> {
        loop {
            if let Some(seen) = self.page.next() {
                return Some(self.locks.shown(seen, self.at));
            }
            let page = self.locks.inner.core.table.view(self.next_page)?;
            self.next_page += 1;
            self.page = page.into_iter();
        }
    }
}
