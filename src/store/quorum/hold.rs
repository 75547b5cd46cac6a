//! One hold: its state in all stores, and what an operation needs to act in one of them.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::QuorumStore;
use super::carriers::Carriers;
use super::members::Members;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::Hold;
use crate::shared_table::SharedRow;
use crate::store::{Attempt, HoldStatus, LockStore, Released};
use crate::sync::Mutex;

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
/// An attempt that is refused or fails leaves the hold in `Asking`. A nested read has the hold id of the read before it, so a
/// hold that has ended may be asked for again: each attempt is an epoch, and an operation with an earlier epoch changes nothing.
///
/// Its mutex is held for no await, and no other mutex is taken under it. Between calls: a store is `dirty` from before an attempt
/// is sent to it until it is known that nothing was left; a store is `tainted` for ever once a question went unanswered; and
/// `carriers` are those of the latest attempt that a majority granted, until an attempt is refused or fails; the late ones only
/// until the next attempt begins.
#[derive(Default)]
pub(super) struct QuorumHold {
    phase: QuorumPhase,
    /// How many attempts there were.
    pub(super) epoch: Epoch,
    /// For each store, the end of the last operation on the hold there, if there ever was one.
    ends: Box<[Option<oneshot::Receiver<()>>]>,
    pub(super) carriers: Carriers,
    /// Stores in which an attempt may have left something.
    pub(super) dirty: Members,
    /// Stores in which an operation went unanswered: they may still receive a delayed copy of it. They are not asked again.
    pub(super) tainted: Members,
    pub(super) waiting: RefusedVote,
    /// Until when the hold is remembered, even if no operation refers to it now.
    needed: Option<Instant>,
}

/// A reference to a hold that is known.
pub(super) type HoldRow = SharedRow<Hold, Mutex<QuorumHold>>;

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
        Self {
            ends: std::iter::repeat_with(|| None).take(stores).collect(),
            ..Self::default()
        }
    }

    /// A hold that another client took: every store may carry it.
    pub(super) fn foreign(stores: usize) -> Self {
        let mut hold = Self::new(stores);
        hold.carriers.counted = Members::first(stores);
        hold.dirty = Members::first(stores);
        hold
    }

    /// Queues an operation in one store: the end of the operation before it, and what it drops at its own end.
    pub(super) fn queue_after_last(
        &mut self,
        store: usize,
    ) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        let (ended, end) = oneshot::channel();
        (self.ends[store].replace(end), ended)
    }

    /// Begins a new attempt. Returns its epoch, and those of `stores` that may be asked.
    pub(super) fn begin(&mut self, stores: Members, needed: Instant) -> (Epoch, Members) {
        self.epoch += 1;
        self.phase = QuorumPhase::Asking;
        // Nothing proves the late stores of an earlier attempt any more.
        self.carriers.late = Members::default();
        self.needed = Some(needed);
        (self.epoch, stores.without(self.tainted))
    }

    /// Marks the store before an attempt is sent. Returns whether this attempt is the first that may leave something
    /// there.
    pub(super) fn soil(&mut self, store: usize) -> bool {
        let first = !self.dirty.contains(store);
        self.dirty.insert(store);
        first
    }

    /// These stores have granted, and are a majority.
    pub(super) fn granted(&mut self, stores: Members) {
        self.phase = QuorumPhase::Held;
        self.carriers.counted = stores;
        self.waiting = RefusedVote::default();
    }

    /// Adds a store that granted late. Returns `false` if the grant is not wanted any more.
    pub(super) fn join(&mut self, epoch: Epoch, store: usize) -> bool {
        let wanted = self.is_held(epoch);
        if wanted {
            self.carriers.late.insert(store);
        }
        wanted
    }

    /// Whether the attempt has become a hold that has not been given up.
    pub(super) fn is_held(&self, epoch: Epoch) -> bool {
        self.epoch == epoch && matches!(self.phase, QuorumPhase::Held)
    }

    /// The attempt is refused although these stores granted. If the vote was split, returns the pause before the next
    /// attempt.
    pub(super) fn refused(
        &mut self,
        granted: Members,
        now: Instant,
        backoff: impl FnOnce(u32) -> Duration,
    ) -> Option<Duration> {
        self.carriers = Carriers::default();
        let split = granted.len() > 0;
        let splits = if split { self.waiting.splits } else { 0 };
        let pause = split.then(|| backoff(splits));
        self.waiting = RefusedVote {
            granting: granted,
            quiet_until: pause.map(|pause| now + pause),
            splits: splits.saturating_add(u32::from(split)),
        };
        pause
    }

    /// The hold is needed for one more lease.
    pub(super) fn renewed(&mut self, needed: Instant) {
        self.needed = self.needed.map(|before| before.max(needed));
    }

    /// The hold is given up. Says of which attempt. What the stores said to an earlier release of it is kept.
    pub(super) fn end(&mut self) -> Epoch {
        if !matches!(self.phase, QuorumPhase::Ending(_)) {
            self.phase = QuorumPhase::Ending(ReleaseVotes::default());
        }
        self.epoch
    }

    /// The store's answer to an earlier release; `None` without a certain answer.
    pub(super) fn ended(&mut self, epoch: Epoch, store: usize) -> Option<HoldStatus> {
        let ReleaseVotes { held, gone, .. } = *self.ending(epoch)?;
        if held.contains(store) {
            return Some(HoldStatus::Held);
        }
        gone.contains(store).then_some(HoldStatus::Gone)
    }

    /// Records the store's answer to a release.
    pub(super) fn note_release(
        &mut self,
        epoch: Epoch,
        store: usize,
        answer: &Result<Released, StoreError>,
    ) {
        let Some(ended) = self.ending(epoch) else {
            return;
        };
        match answer.as_ref().map(|released| released.status) {
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
    pub(super) fn released(&mut self, epoch: Epoch, majority: usize) -> Option<HoldStatus> {
        let ReleaseVotes { held, gone, .. } = *self.ending(epoch)?;
        self.carriers.unbroken(majority, held, gone)
    }

    /// After this attempt, the hold is remembered only while an operation refers to it.
    pub(super) fn retire(&mut self, epoch: Epoch) {
        if self.epoch == epoch {
            self.needed = None;
        }
    }

    /// Whether it is remembered although no operation refers to it.
    pub(super) fn is_needed(&self) -> bool {
        self.needed.is_some_and(|needed| Instant::now() < needed)
    }

    /// The answers to the release of this attempt, if it is being released.
    fn ending(&mut self, epoch: Epoch) -> Option<&mut ReleaseVotes> {
        match &mut self.phase {
            QuorumPhase::Ending(ended) if self.epoch == epoch => Some(ended),
            _ => None,
        }
    }
}

/// An attempt, and the state of its hold in all stores.
#[derive(Clone)]
pub(super) struct AttemptedHold {
    pub(super) attempt: Attempt,
    pub(super) hold: HoldRow,
}

/// One hold in one store of the quorum: what an operation needs to act there.
pub(super) struct StoreHold<S> {
    pub(super) quorum: QuorumStore<S>,
    pub(super) of: AttemptedHold,
    /// The number of the store.
    pub(super) at: usize,
}

impl<S> StoreHold<S> {
    pub(super) fn store(&self) -> &S {
        &self.quorum.shared.stores[self.at]
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// A hold that should be known. If it is not, another client took it.
    pub(super) fn known(&self, name: &Hold) -> HoldRow {
        let foreign = || Mutex::new(QuorumHold::foreign(self.count()));
        self.shared.holds.find_or(name, foreign)
    }

    /// An attempt whose hold is to end.
    pub(super) fn given_up(&self, attempt: Attempt) -> AttemptedHold {
        let hold = self.known(&attempt.hold);
        AttemptedHold { attempt, hold }
    }

    /// Does something about a hold in each of `stores`, to its end, in the background. In each store, operations on one hold
    /// take effect in the order of these calls: a release never overtakes the acquire before it.
    pub(super) fn in_order<F>(
        &self,
        of: &AttemptedHold,
        stores: Members,
        work: impl Fn(StoreHold<S>) -> F,
    ) -> Vec<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = stores.iter().map(|at| {
            let (before, ended) = of.hold.lock().queue_after_last(at);
            let work = work(StoreHold {
                quorum: self.clone(),
                of: of.clone(),
                at,
            });
            self.shared.running.spawn(async move {
                if let Some(before) = before {
                    // An error means that the operation before was dropped, so it has ended.
                    let _ = before.await;
                }
                work.await;
                drop(ended);
            })
        });
        tasks.collect()
    }
}
