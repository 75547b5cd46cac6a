//! What is known of each hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as Turns, OwnedMutexGuard};
use tokio::time::{Instant, sleep};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore};

use crate::QuorumStore;
use crate::ballot::{Vote, majority};
use crate::table::lock;

/// How much longer than its lease a hold is remembered: for an attempt that is made again, and for a late release.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The pauses between two withdrawals in a store that fails: the first, and the longest. They double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// One hold, from its first attempt to its end.
///
/// Its seats are locked for no await, and no other mutex is taken under theirs.
#[derive(Debug)]
pub(crate) struct Entry {
    seats: Mutex<Vec<Seat>>,
    /// What is done about the hold in a store happens in turns, in the order in which it was asked for: a release never overtakes
    /// the acquire before it.
    pub(crate) turns: Vec<Arc<Turns<()>>>,
    /// Until when it is remembered, unless nothing is left of it before.
    until: Mutex<Instant>,
}

/// One hold in one store. Except for the end of its counting, it changes in the store's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seat {
    /// Nothing is there.
    Empty,
    /// Something may be there: the entry of a waiter, or a grant that does not count.
    Used,
    /// The store can prove that the hold was held *all the time*. A store that granted later cannot: the others may have lost
    /// their data, and another client may have had the lock, before the late grant arrived.
    Counts,
    /// It counted until a release went unanswered. If the store carries the hold no longer, this proves nothing.
    Unsure,
    /// It counted, and carried the hold until its release.
    Released,
    /// A delayed copy of a question may still arrive. The store is not asked for this hold again before it has withdrawn it, and then
    /// it refuses any copy.
    Doubtful,
}

impl Entry {
    pub(crate) fn new(stores: usize, seat: Seat) -> Self {
        Self {
            seats: Mutex::new(vec![seat; stores]),
            turns: (0..stores).map(|_| Arc::default()).collect(),
            until: Mutex::new(Instant::now()),
        }
    }

    /// Remembers the hold for one more lease.
    pub(crate) fn remember(&self, lease: Duration) {
        let mut until = lock(&self.until);
        *until = (*until).max(after(Instant::now(), lease.saturating_add(REMEMBERED)));
    }

    pub(crate) fn is_needed(&self) -> bool {
        let is_empty = |seat: &Seat| *seat == Seat::Empty;
        Instant::now() < *lock(&self.until) && !lock(&self.seats).iter().all(is_empty)
    }

    /// From now on the stores count that are named, and no others.
    pub(crate) fn count(&self, counts: impl Fn(usize) -> bool) {
        for (at, seat) in lock(&self.seats).iter_mut().enumerate() {
            match counts(at) {
                true => *seat = Seat::Counts,
                false if *seat == Seat::Counts => *seat = Seat::Used,
                false => {}
            }
        }
    }

    /// The hold is given up. What may be there counts no longer, and is `left` to be withdrawn.
    pub(crate) fn end(&self, left: Seat) {
        for seat in lock(&self.seats).iter_mut() {
            *seat = match *seat {
                Seat::Used | Seat::Counts | Seat::Unsure => left,
                Seat::Released => Seat::Empty,
                over => over,
            };
        }
    }

    /// Whether a majority of the stores has carried the hold all the time, if each that counts says what `said` says; `None` if
    /// that depends on the others.
    pub(crate) fn unbroken(
        &self,
        said: impl Fn(usize, Seat) -> Option<HoldStatus>,
    ) -> Option<HoldStatus> {
        let seats = lock(&self.seats);
        let counted = |seat| matches!(seat, Seat::Counts | Seat::Unsure | Seat::Released);
        let counted = seats.iter().enumerate().filter(|(_, seat)| counted(**seat));
        let said: Vec<_> = counted.map(|(at, seat)| said(at, *seat)).collect();
        let that_say = |status| said.iter().filter(|&&said| said == Some(status)).count();
        let majority = majority(seats.len());
        if said.len() - that_say(HoldStatus::Gone) < majority {
            return Some(HoldStatus::Gone);
        }
        (that_say(HoldStatus::Held) >= majority).then_some(HoldStatus::Held)
    }
}

/// One hold in one store, in its turn: nothing else is done about the hold there.
pub(crate) struct Place<S> {
    pub(crate) quorum: QuorumStore<S>,
    pub(crate) attempt: Attempt,
    pub(crate) entry: Arc<Entry>,
    /// The number of the store.
    pub(crate) at: usize,
    pub(crate) _turn: OwnedMutexGuard<()>,
}

impl<S: LockStore> Place<S> {
    pub(crate) fn store(&self) -> &S {
        &self.quorum.shared.stores[self.at]
    }

    /// Reads or changes the seat.
    pub(crate) fn seat<R>(&self, change: impl FnOnce(&mut Seat) -> R) -> R {
        change(&mut lock(&self.entry.seats)[self.at])
    }

    /// Withdraws what may be in the store.
    pub(crate) async fn withdraw(self) -> (Vote<()>, Self) {
        let seat = self.seat(|seat| *seat);
        if seat == Seat::Empty {
            return (Ok(()), self);
        }
        let unanswered = seat == Seat::Doubtful;
        let answer = self.store().withdraw(&self.attempt, unanswered).await;
        self.seat(|seat| match &answer {
            Ok(()) => *seat = Seat::Empty,
            // It may still take effect, even on a later hold with this name.
            Err(error) if is_unanswered(error) => *seat = Seat::Doubtful,
            Err(_) => {}
        });
        (answer, self)
    }

    /// The same, again and again, until the store has answered or the hold is forgotten.
    pub(crate) async fn undo(mut self) {
        let mut pause = PAUSE.0;
        loop {
            let (answer, place) = self.withdraw().await;
            if answer.is_ok() || Instant::now() >= *lock(&place.entry.until) {
                return;
            }
            self = place;
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }
}

pub(crate) fn is_unanswered(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Unanswered
}

/// `duration` from `now`, or the far future if there is no such instant.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now + duration.min(FAR)
}
