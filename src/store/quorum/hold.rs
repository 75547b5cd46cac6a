//! The state of one hold in all stores.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::carriers::Carriers;
use super::members::Members;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::Hold;
use crate::shared_table::SharedRow;
use crate::store::HoldStatus;
use crate::sync::{Mutex, MutexGuard};

/// One hold, from its first attempt until no operation refers to it.
///
/// ```text
///           a majority grants            release, withdraw
/// Asking ──────────────────────► Held ─────────────────────► Ending
///   ▲ │                           │                             │
///   │ └── release, withdraw ──────┼────────────────────────────►│
///   └────────── asked for again: the next epoch ────────────────┘
/// ```
///
/// An attempt that is refused or fails leaves the hold in `Asking`. A nested read bears the name of the one before, so a
/// hold that has ended may be asked for again: each attempt is an epoch, and an operation that speaks of an earlier epoch
/// changes nothing.
pub(super) struct QuorumHold {
    state: Mutex<QuorumHoldState>,
}

/// The mutex protects all of it. It is held for no await, and no other mutex is taken under it.
///
/// Between calls: a store is `dirty` from before an attempt is sent to it until it is known that nothing was left; a store
/// is `tainted` for ever once a question went unanswered; and `carriers` are those of the latest attempt that a majority
/// granted, until an attempt is refused or fails.
#[derive(Default)]
struct QuorumHoldState {
    phase: QuorumPhase,
    /// How many attempts there were.
    epoch: Epoch,
    /// For each store, the end of the last operation on the hold there, if there ever was one.
    ends: Box<[Option<oneshot::Receiver<()>>]>,
    carriers: Carriers,
    /// Stores in which an attempt may have left something.
    dirty: Members,
    /// Stores that may still receive a delayed copy of an operation on this hold. They are not asked again.
    tainted: Members,
    waiting: RefusedVote,
    /// Until when the hold is remembered, even if no operation refers to it now.
    needed: Option<Instant>,
}

/// A reference to a hold that is known.
pub(super) type HoldRow = SharedRow<Hold, QuorumHold>;

/// Distinguishes the attempts with one hold id.
pub(super) type Epoch = u64;

#[derive(Clone, Copy, Default)]
enum QuorumPhase {
    /// A majority has not granted yet.
    #[default]
    Asking,
    /// A majority granted. A store that grants later joins it.
    Held,
    /// Grants that are still to come are not wanted.
    Ending(ReleaseVotes),
}

/// The answers to a release, store by store. They are kept because it may take several attempts to get the answers of a
/// majority.
#[derive(Clone, Copy, Default)]
struct ReleaseVotes {
    held: Members,
    gone: Members,
    /// A release went unanswered: a later answer that the hold is gone proves nothing.
    unsure: Members,
}

/// What a refused attempt waits for.
#[derive(Clone, Copy, Default)]
pub(super) struct RefusedVote {
    /// Stores that would have granted: their wake-ups bring nothing new.
    pub(super) granting: Members,
    /// The earliest time to ask again.
    pub(super) quiet_until: Option<Instant>,
    /// How many times in a row the vote was split.
    splits: u32,
}

impl QuorumHold {
    /// A hold that no store was asked about.
    pub(super) fn new(stores: usize) -> Self {
        let state = QuorumHoldState {
            ends: std::iter::repeat_with(|| None).take(stores).collect(),
            ..QuorumHoldState::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// A hold that another client took: every store may carry it.
    pub(super) fn foreign(stores: usize) -> Self {
        let hold = Self::new(stores);
        {
            let mut state = hold.state();
            state.carriers.counted = Members::first(stores);
            state.dirty = Members::first(stores);
        }
        hold
    }

    /// Queues an operation in one store: the end of the operation before it, and what it drops at its own end.
    pub(super) fn turn(
        &self,
        store: usize,
    ) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        let (ended, end) = oneshot::channel();
        (self.state().ends[store].replace(end), ended)
    }

    /// Begins a new attempt. Returns its epoch, and those of `stores` that may be asked.
    pub(super) fn begin(&self, stores: Members, needed: Instant) -> (Epoch, Members) {
        let mut state = self.state();
        state.epoch += 1;
        state.phase = QuorumPhase::Asking;
        state.needed = Some(needed);
        (state.epoch, stores.without(state.tainted))
    }

    /// Marks the store before an attempt is sent. Returns whether this attempt is the first that may leave something
    /// there.
    pub(super) fn soil(&self, store: usize) -> bool {
        let mut state = self.state();
        let first = !state.dirty.contains(store);
        state.dirty.insert(store);
        first
    }

    /// Unmarks the store: the first attempt has left nothing.
    pub(super) fn clean(&self, store: usize) {
        let mut state = self.state();
        state.dirty = state.dirty.without(std::iter::once(store).collect());
    }

    /// Whether an attempt may have left something in the store.
    pub(super) fn is_dirty(&self, store: usize) -> bool {
        self.state().dirty.contains(store)
    }

    /// Stops using the store for this hold: an operation went unanswered, and a copy of it may arrive at any time.
    pub(super) fn taint(&self, store: usize) {
        self.state().tainted.insert(store);
    }

    pub(super) fn is_tainted(&self, store: usize) -> bool {
        self.state().tainted.contains(store)
    }

    /// These stores have granted, and are a majority.
    pub(super) fn granted(&self, stores: Members) {
        let mut state = self.state();
        state.phase = QuorumPhase::Held;
        state.carriers.counted = stores;
        state.waiting = RefusedVote::default();
    }

    /// Adds a store that granted late. Returns `false` if the grant is not wanted any more.
    pub(super) fn join(&self, epoch: Epoch, store: usize) -> bool {
        let mut state = self.state();
        let wanted = state.is_held(epoch);
        if wanted {
            state.carriers.late.insert(store);
        }
        wanted
    }

    /// Whether the attempt has become a hold that has not been given up.
    pub(super) fn is_held(&self, epoch: Epoch) -> bool {
        self.state().is_held(epoch)
    }

    /// The attempt is refused although these stores granted. If the vote was split, returns the pause before the next
    /// attempt.
    pub(super) fn refused(
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
        state.waiting = RefusedVote {
            granting: granted,
            quiet_until: pause.map(|pause| now + pause),
            splits: splits.saturating_add(u32::from(split)),
        };
        pause
    }

    /// The attempt has failed.
    pub(super) fn failed(&self) {
        self.state().carriers = Carriers::default();
    }

    pub(super) fn waiting(&self) -> RefusedVote {
        self.state().waiting
    }

    pub(super) fn carriers(&self) -> Carriers {
        self.state().carriers
    }

    /// A renewal or check has proved the hold unbroken.
    pub(super) fn proved(&self, late_when_asked: Members) {
        self.state().carriers.follow(late_when_asked);
    }

    /// The hold is needed for one more lease.
    pub(super) fn renewed(&self, needed: Instant) {
        let mut state = self.state();
        state.needed = state.needed.map(|before| before.max(needed));
    }

    /// The hold is given up. Says of which attempt. What the stores said to an earlier release of it is kept.
    pub(super) fn end(&self) -> Epoch {
        let mut state = self.state();
        if !matches!(state.phase, QuorumPhase::Ending(_)) {
            state.phase = QuorumPhase::Ending(ReleaseVotes::default());
        }
        state.epoch
    }

    /// The store's answer to an earlier release; `None` without a certain answer.
    pub(super) fn ended(&self, epoch: Epoch, store: usize) -> Option<HoldStatus> {
        let mut state = self.state();
        let ReleaseVotes { held, gone, .. } = *state.ending(epoch)?;
        if held.contains(store) {
            return Some(HoldStatus::Held);
        }
        gone.contains(store).then_some(HoldStatus::Gone)
    }

    /// Records the store's answer to a release.
    pub(super) fn note_release(
        &self,
        epoch: Epoch,
        store: usize,
        answer: &Result<HoldStatus, StoreError>,
    ) {
        let mut state = self.state();
        let Some(ended) = state.ending(epoch) else {
            return;
        };
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

    /// Whether a majority carried the hold until it was released; `None` if too few stores have said.
    pub(super) fn released(&self, epoch: Epoch, majority: usize) -> Option<HoldStatus> {
        let mut state = self.state();
        let ReleaseVotes { held, gone, .. } = *state.ending(epoch)?;
        state.carriers.unbroken(majority, held, gone)
    }

    /// After this attempt, the hold is remembered only while an operation refers to it.
    pub(super) fn retire(&self, epoch: Epoch) {
        let mut state = self.state();
        if state.epoch == epoch {
            state.needed = None;
        }
    }

    /// Whether it is remembered although no operation refers to it.
    pub(super) fn is_needed(&self) -> bool {
        let needed = self.state().needed;
        needed.is_some_and(|needed| Instant::now() < needed)
    }

    fn state(&self) -> MutexGuard<'_, QuorumHoldState> {
        self.state.lock()
    }
}

impl QuorumHoldState {
    fn is_held(&self, epoch: Epoch) -> bool {
        self.epoch == epoch && matches!(self.phase, QuorumPhase::Held)
    }

    /// The answers to the release of this attempt, if it is being released.
    fn ending(&mut self, epoch: Epoch) -> Option<&mut ReleaseVotes> {
        match &mut self.phase {
            QuorumPhase::Ending(ended) if self.epoch == epoch => Some(ended),
            _ => None,
        }
    }
}
