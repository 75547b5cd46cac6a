//! What is known of one hold.

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
struct State {
    lines: Lines,
    carriers: Carriers,
    /// Stores in which the attempt may have left something.
    touched: Members,
    /// Stores that may still meet a stray copy of an operation on this hold: not asked again.
    spent: Members,
    /// How many attempts there were. A nested read bears the name of the one before, so what is left of an earlier attempt
    /// must not speak for a later one.
    epoch: Epoch,
    /// Being released or withdrawn: grants that are still to come are not wanted.
    ending: bool,
    ended: Ended,
    waiting: Waiting,
    /// Until when the entry is needed, even if no operation uses it now.
    needed: Option<Instant>,
}

/// Tells the attempts of one name apart.
pub(super) type Epoch = u64;

/// What became of a release, store by store; kept because it may take several tries to hear it from a majority.
#[derive(Clone, Copy, Default)]
struct Ended {
    held: Members,
    gone: Members,
    /// Went unanswered: that the hold is gone says nothing any more.
    unsure: Members,
}

/// What a refused attempt waits for.
#[derive(Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Stores that would have granted: nothing new is heard from them.
    pub(super) granting: Members,
    /// Not to ask again before.
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
    /// A hold that nothing was asked about yet.
    pub(super) fn new(stores: usize) -> Self {
        let state = State {
            lines: Lines::new(stores),
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// A hold that was taken elsewhere: every store may carry it.
    pub(super) fn foreign(stores: usize) -> Self {
        let entry = Self::new(stores);
        {
            let mut state = entry.state();
            state.carriers.counted = Members::first(stores);
            state.touched = Members::first(stores);
        }
        entry
    }

    /// Lines up for an operation in one store. The order of the calls is the order of the operations.
    pub(super) fn turn(&self, store: usize) -> Turn {
        self.state().lines.join(store)
    }

    /// A new attempt begins, and is asked for in `stores` or those of them that can be asked. Says which.
    pub(super) fn begin(&self, stores: Members, needed: Instant) -> (Epoch, Members) {
        let mut state = self.state();
        state.epoch += 1;
        state.ending = false;
        state.ended = Ended::default();
        state.needed = Some(needed);
        (state.epoch, stores.without(state.spent))
    }

    /// An attempt is about to be sent. Says whether it may be the first to leave something there.
    pub(super) fn touch(&self, store: usize) -> bool {
        let mut state = self.state();
        let first = !state.touched.contains(store);
        state.touched.insert(store);
        first
    }

    /// The first attempt to leave something has left nothing.
    pub(super) fn untouch(&self, store: usize) {
        let mut state = self.state();
        state.touched = state.touched.without(std::iter::once(store).collect());
    }

    /// Whether something may be left in the store.
    pub(super) fn touched(&self, store: usize) -> bool {
        self.state().touched.contains(store)
    }

    /// Gives up the store for this hold: an operation went unanswered, and a copy of it may come at any time.
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

    /// One more store has granted; false if its grant is not wanted any more.
    pub(super) fn join(&self, epoch: Epoch, store: usize) -> bool {
        let mut state = self.state();
        let wanted = state.wants(epoch);
        if wanted {
            state.carriers.late.insert(store);
        }
        wanted
    }

    /// Whether the attempt has become a hold that is still wanted.
    pub(super) fn wants(&self, epoch: Epoch) -> bool {
        self.state().wants(epoch)
    }

    /// The attempt is refused although these stores granted. Returns when to ask again at the earliest, if the vote was
    /// split.
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

    /// From now on nothing of the hold is wanted. Says of which attempt.
    pub(super) fn end(&self) -> Epoch {
        let mut state = self.state();
        state.ending = true;
        state.epoch
    }

    /// What the store has said to an earlier release, if that is settled.
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

    /// Notes what the store said to a release.
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
            // An earlier release may have been the one that ended it.
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

    /// After this attempt, the entry is needed only by those who use it.
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
