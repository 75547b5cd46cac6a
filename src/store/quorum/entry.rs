//! The state of one hold in all stores.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::carriers::Carriers;
use super::members::Members;
use super::turn::{Lines, Turn};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::HoldStatus;

/// One hold, from its first attempt until no operation refers to it.
pub(super) struct Entry {
    state: Mutex<State>,
}

#[derive(Default)]
/// Protected by one mutex. No other mutex is taken under it, and it is never held across an await.
///
/// An attempt goes from `begin` to `won`, `refuse` or `fail`; `end` sets `ending`, and the next `begin` clears it. A grant
/// counts only while its epoch is the current one and `ending` is false.
struct State {
    lines: Lines,
    carriers: Carriers,
    /// Stores in which the attempt may have left something.
    touched: Members,
    /// Stores that may still receive a delayed copy of an operation on this hold. They are not asked again.
    spent: Members,
    /// The number of attempts so far. A nested read has the same hold id as the one before, so an answer to an earlier
    /// attempt must not count for a later one.
    epoch: Epoch,
    /// The hold is being released or withdrawn: grants that still arrive are not wanted.
    ending: bool,
    ended: Ended,
    waiting: Waiting,
    /// The time until which the entry is needed, even if no operation uses it now.
    needed: Option<Instant>,
}

/// Distinguishes the attempts with one hold id.
pub(super) type Epoch = u64;

/// The answers to a release, store by store. They are kept because it may take several attempts to get the answers of a
/// majority.
#[derive(Clone, Copy, Default)]
struct Ended {
    held: Members,
    gone: Members,
    /// A release went unanswered: a later answer that the hold is gone proves nothing.
    unsure: Members,
}

/// What a refused attempt waits for.
#[derive(Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Stores that would have granted: their wake-ups bring nothing new.
    pub(super) granting: Members,
    /// The earliest time to ask again.
    pub(super) quiet_until: Option<Instant>,
    /// How many times in a row the vote was split.
    splits: u32,
}

impl State {
    fn wants(&self, epoch: Epoch) -> bool {
        self.epoch == epoch && !self.ending
    }
}

impl Entry {
    /// A hold that no store was asked about.
    pub(super) fn new(stores: usize) -> Self {
        let state = State {
            lines: Lines::new(stores),
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// A hold that another client took: every store may carry it.
    pub(super) fn foreign(stores: usize) -> Self {
        let entry = Self::new(stores);
        {
            let mut state = entry.state();
            state.carriers.counted = Members::first(stores);
            state.touched = Members::first(stores);
        }
        entry
    }

    /// Adds an operation to the queue of one store. Operations run in the order of these calls.
    pub(super) fn turn(&self, store: usize) -> Turn {
        self.state().lines.join(store)
    }

    /// Begins a new attempt. Returns its epoch, and those of `stores` that may be asked.
    pub(super) fn begin(&self, stores: Members, needed: Instant) -> (Epoch, Members) {
        let mut state = self.state();
        state.epoch += 1;
        state.ending = false;
        state.ended = Ended::default();
        state.needed = Some(needed);
        (state.epoch, stores.without(state.spent))
    }

    /// Marks the store before an attempt is sent. Returns whether this attempt is the first that may leave something
    /// there.
    pub(super) fn touch(&self, store: usize) -> bool {
        let mut state = self.state();
        let first = !state.touched.contains(store);
        state.touched.insert(store);
        first
    }

    /// Unmarks the store: the first attempt has left nothing.
    pub(super) fn untouch(&self, store: usize) {
        let mut state = self.state();
        state.touched = state.touched.without(std::iter::once(store).collect());
    }

    /// Whether an attempt may have left something in the store.
    pub(super) fn touched(&self, store: usize) -> bool {
        self.state().touched.contains(store)
    }

    /// Stops using the store for this hold: an operation went unanswered, and a copy of it may arrive at any time.
    pub(super) fn spend(&self, store: usize) {
        self.state().spent.insert(store);
    }

    pub(super) fn is_spent(&self, store: usize) -> bool {
        self.state().spent.contains(store)
    }

    /// The attempt is granted by these stores.
    pub(super) fn won(&self, granted: Members) {
        let mut state = self.state();
        state.carriers.counted = granted;
        state.waiting = Waiting::default();
    }

    /// Adds a store that granted late. Returns `false` if the grant is not wanted any more.
    pub(super) fn join(&self, epoch: Epoch, store: usize) -> bool {
        let mut state = self.state();
        let wanted = state.wants(epoch);
        if wanted {
            state.carriers.late.insert(store);
        }
        wanted
    }

    /// Whether a grant of this attempt is still wanted.
    pub(super) fn wants(&self, epoch: Epoch) -> bool {
        self.state().wants(epoch)
    }

    /// The attempt is refused although these stores granted. If the vote was split, returns the pause before the next
    /// attempt.
    pub(super) fn refuse(
        &self,
        granted: Members,
        now: Instant,
        backoff: impl FnOnce(u32) -> Duration,
    ) -> Option<Duration> {
        let mut state = self.state();
        state.carriers = Carriers::default();
        let split = granted.len() > 0;
        let splits = if split { state.waiting.splits } else { 0 };
        let pause = split.then(|| backoff(splits));
        state.waiting = Waiting {
            granting: granted,
            quiet_until: pause.map(|pause| now + pause),
            splits: splits.saturating_add(u32::from(split)),
        };
        pause
    }

    /// The attempt has failed.
    pub(super) fn fail(&self) {
        self.state().carriers = Carriers::default();
    }

    pub(super) fn waiting(&self) -> Waiting {
        self.state().waiting
    }

    pub(super) fn carriers(&self) -> Carriers {
        self.state().carriers
    }

    /// A renewal or check has proved the hold unbroken.
    pub(super) fn proved(&self, late_when_asked: Members) {
        let mut state = self.state();
        state.carriers.follow(late_when_asked);
    }

    /// The hold is needed for one more lease.
    pub(super) fn renewed(&self, needed: Instant) {
        let mut state = self.state();
        state.needed = state.needed.map(|before| before.max(needed));
    }

    /// Ends the hold: later grants are not wanted. Returns the epoch.
    pub(super) fn end(&self) -> Epoch {
        let mut state = self.state();
        state.ending = true;
        state.epoch
    }

    /// The store's answer to an earlier release; `None` without a certain answer.
    pub(super) fn ended(&self, epoch: Epoch, store: usize) -> Option<HoldStatus> {
        let state = self.state();
        let Ended { held, gone, .. } = state.ended;
        if state.epoch != epoch {
            None
        } else if held.contains(store) {
            Some(HoldStatus::Held)
        } else {
            gone.contains(store).then_some(HoldStatus::Gone)
        }
    }

    /// Records the store's answer to a release.
    pub(super) fn note_release(
        &self,
        epoch: Epoch,
        store: usize,
        answer: &Result<HoldStatus, StoreError>,
    ) {
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        let ended = &mut state.ended;
        match answer {
            Ok(HoldStatus::Held) => ended.held.insert(store),
            // An earlier release may have ended the hold.
            Ok(HoldStatus::Gone) if ended.unsure.contains(store) => {}
            Ok(HoldStatus::Gone) => ended.gone.insert(store),
            Ok(HoldStatus::Unknown) => ended.unsure.insert(store),
            Err(error) if error.kind() == StoreErrorKind::Unanswered => ended.unsure.insert(store),
            Err(_) => {}
        }
    }

    /// Whether a majority carried the hold until it was released.
    pub(super) fn released(&self, majority: usize) -> Option<HoldStatus> {
        let state = self.state();
        let Ended { held, gone, .. } = state.ended;
        state.carriers.unbroken(majority, held, gone)
    }

    /// Ends the need for the entry, unless a newer attempt has begun. The entry then exists only while an operation uses
    /// it.
    pub(super) fn retire(&self, epoch: Epoch) {
        let mut state = self.state();
        if state.epoch == epoch {
            state.needed = None;
        }
    }

    pub(super) fn is_needed(&self, now: Instant) -> bool {
        self.state().needed.is_some_and(|needed| now < needed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
