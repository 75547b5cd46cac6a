//! Bugs that tests must find.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A bug, which `tests/mutants.patch` plants in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A waiter that is cancelled just after it got the hold or the turn does not pass it on.
    GiftKept,
    /// A request for any of several keys continues to sleep when it gets one of them in the process.
    GiftUnseen,
    /// A request that gives up its turn does not pass it on.
    TurnKept,
    /// A hold is handed over although it is lost, or nearly lost.
    LostPassedOn,
    /// A new request is put at the front of the queue.
    LastInFirstOut,
    /// A hold keeps its fencing token at a hand-over.
    TokenKept,
    /// A release that succeeds confirms a hold that was lost.
    LossUndone,
    /// Of two requests of an owner, only the first is answered.
    SiblingForgotten,
    /// A renewal counts even if its answer is late.
    LateRenewal,
    /// What frees a key wakes no process in line.
    WakesNone,
    /// A process that is dead keeps its place in line, and is woken.
    WakesTheDead,
    /// A process that was woken and gives up does not wake the next one.
    LosesTheTurn,
    /// What frees a key wakes every process that listens.
    WakesAll,
    /// One more permit is granted than there are.
    OnePermitMore,
    /// A grant that leaves a permit free does not wake the next process.
    NextPermitForgotten,
    /// A permit that has expired counts as held.
    ExpiredPermitCounts,
    /// Every request of a process asks the store for a permit.
    HerdAsks,
    /// A request that has asked for a permit does not pass the turn on when it is answered.
    PermitTurnKept,
    /// A task ends, and the requests that come later wait for it.
    TaskGone,
    /// A grant that a request does not take stays with it.
    UntakenKept,
    /// A grant is given to a request that it does not fit.
    FitsAnybody,
    /// A hold confirms a share by the time of the answer, and not by that of the question.
    HeldThroughTheAnswer,
    /// A loss is noticed although a release decides how the hold ends.
    ReleaseOverruled,
}

thread_local! {
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this bug is in the code.
pub(crate) fn has(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Asserts that `work` panics when this bug is in the code.
pub(crate) fn is_found(mutant: Mutant, work: impl FnOnce()) {
    MUTANT.set(Some(mutant));
    let found = catch_unwind(AssertUnwindSafe(work));
    MUTANT.set(None);
    assert!(found.is_err(), "{mutant:?} goes unnoticed");
}
