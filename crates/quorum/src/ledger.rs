//! What is known of each hold, and the order of what is done about it in each store.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_distributed_lock::store::{Attempt, HoldStatus};
use tower_distributed_lock::{Hold, LockStore};

use crate::QuorumStore;
use crate::ballot::majority;
use crate::table::Table;
use crate::watched::lock;

/// How much longer than its lease a hold is remembered: for an attempt that is made again, and for a late release.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Every hold that was asked for, and has not ended.
#[derive(Debug)]
pub(crate) struct Ledger(Table<Hold, Entry>);

/// One hold, from its first attempt to its end.
///
/// Its mutex is held for no await, and no other is taken under it. Between calls: a seat is `used` from before an attempt is sent
/// to its store until it is known that nothing is left there; it is `doubtful` for good once a question went unanswered; and it
/// `counts` if its store granted before the latest attempt was answered as granted.
#[derive(Debug)]
pub(crate) struct Entry(Mutex<State>);

#[derive(Debug)]
pub(crate) struct State {
    /// What is known of the hold in each store.
    pub(crate) seats: Vec<Seat>,
    /// The hold was given up. If it is asked for again, as a read under a write may be, that begins another entry.
    ending: bool,
    /// Until when it is remembered, even if no task refers to it.
    needed: Option<Instant>,
}

/// One hold in one store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seat {
    /// The store can prove that the hold was held *all the time*. A store that granted later cannot: the others may have lost
    /// their data, and another client may have had the lock, before the late grant arrived.
    pub(crate) counts: bool,
    /// An attempt may have left something in the store.
    pub(crate) used: bool,
    /// A delayed copy of a question may still arrive. The store is not asked for this hold again.
    pub(crate) doubtful: bool,
    /// What the store said to the release. It is kept, because a release may need several tries to get the answers of a
    /// majority. `Unknown`: it went unanswered, so that a later `Gone` proves nothing.
    pub(crate) ended: Option<HoldStatus>,
    /// The end of the latest task about the hold in this store.
    latest: Option<CancellationToken>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self(Table::new(|entry: &Entry| {
            let needed = entry.state().needed;
            needed.is_some_and(|needed| Instant::now() < needed)
        }))
    }

    /// The hold of an attempt that is made now.
    pub(crate) fn asking(&self, attempt: &Attempt, stores: usize) -> Arc<Entry> {
        let entry = self.0.put(&attempt.hold, |present| match present {
            Some(entry) if !entry.state().ending => entry,
            Some(ended) => ended.again(),
            None => Entry::of(vec![Seat::default(); stores]),
        });
        entry.remember(attempt.lease);
        entry
    }

    /// A hold that should be known. If it is not, another client took it.
    pub(crate) fn known(&self, hold: &Hold, stores: usize) -> Arc<Entry> {
        let known = self.0.find(hold);
        known.unwrap_or_else(|| Entry::foreign(stores))
    }

    /// The same, for a hold that is given up.
    pub(crate) fn ending(&self, hold: &Hold, stores: usize) -> Arc<Entry> {
        let entry = self.0.put(hold, |present| match present {
            Some(entry) if !entry.state().has_ended() => entry,
            Some(ended) => ended.again(),
            None => Entry::foreign(stores),
        });
        entry.state().ending = true;
        entry.remember(Duration::ZERO);
        entry
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Entry {
    fn of(seats: Vec<Seat>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            seats,
            ending: false,
            needed: None,
        })))
    }

    /// A hold of which nothing is known: every store may carry it.
    fn foreign(stores: usize) -> Arc<Self> {
        let seat = Seat {
            counts: true,
            used: true,
            ..Seat::default()
        };
        Self::of(vec![seat; stores])
    }

    /// The hold whose name is used again. What is still under way in a store precedes the new attempt there.
    fn again(&self) -> Arc<Self> {
        let again = |seat: &Seat| Seat {
            counts: false,
            ended: None,
            ..seat.clone()
        };
        Self::of(self.state().seats.iter().map(again).collect())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Remembers the hold for one more lease.
    pub(crate) fn remember(&self, lease: Duration) {
        let needed = after(Instant::now(), lease.saturating_add(REMEMBERED));
        let mut state = self.state();
        state.needed = state.needed.max(Some(needed));
    }

    /// From now on the hold is remembered only while a task refers to it.
    pub(crate) fn forget(&self) {
        self.state().needed = None;
    }
}

impl State {
    /// Whether the hold was given up, and a majority has answered.
    fn has_ended(&self) -> bool {
        self.ending && self.needed.is_none()
    }

    /// Whether a majority of the stores has carried the hold all the time, if each seat says what `said` says; `None` if that
    /// depends on the others.
    pub(crate) fn unbroken(
        &self,
        said: impl Fn(usize, &Seat) -> Option<HoldStatus>,
    ) -> Option<HoldStatus> {
        let seats = self.seats.iter().enumerate();
        let count = seats.filter(|(_, seat)| seat.counts);
        let said: Vec<_> = count.map(|(store, seat)| said(store, seat)).collect();
        let that_say = |status| said.iter().filter(|&&said| said == Some(status)).count();
        let majority = majority(self.seats.len());
        if said.len() - that_say(HoldStatus::Gone) < majority {
            return Some(HoldStatus::Gone);
        }
        (that_say(HoldStatus::Held) >= majority).then_some(HoldStatus::Held)
    }
}

/// One hold in one store: what a task needs to act there.
pub(crate) struct Place<S> {
    pub(crate) quorum: QuorumStore<S>,
    pub(crate) attempt: Attempt,
    pub(crate) entry: Arc<Entry>,
    /// The number of the store.
    pub(crate) at: usize,
}

impl<S> Place<S> {
    pub(crate) fn store(&self) -> &S {
        &self.quorum.shared.stores[self.at]
    }

    /// Changes the seat.
    pub(crate) fn seat<R>(&self, change: impl FnOnce(&mut Seat) -> R) -> R {
        change(&mut self.entry.state().seats[self.at])
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Does something about a hold in every store, to its end, in the background. In each store, what is done about a hold happens
    /// in the order of these calls: a release never overtakes the acquire before it. Returns the ends of the tasks.
    pub(crate) fn in_order<F>(
        &self,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        work: impl Fn(Place<S>) -> F,
    ) -> Vec<CancellationToken>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = (0..self.stores()).map(|at| {
            let ended = CancellationToken::new();
            let before = entry.state().seats[at].latest.replace(ended.clone());
            let work = work(Place {
                quorum: self.clone(),
                attempt: attempt.clone(),
                entry: entry.clone(),
                at,
            });
            // Also when the task panics, or is dropped with its runtime.
            let ending = ended.clone().drop_guard();
            self.shared.running.spawn(async move {
                let _ending = ending;
                if let Some(before) = before {
                    before.cancelled().await;
                }
                work.await;
            });
            ended
        });
        tasks.collect()
    }
}

/// `duration` from `now`, or the far future if there is no such instant.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now + duration.min(FAR)
}
