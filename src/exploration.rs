//! Runs unit tests in many orders of events.
//!
//! [`explore`] runs a scenario many times. Its tasks run in a new order each time, which [`shuttle`] chooses: at every
//! lock and unlock of a [`sync::Mutex`](crate::sync::Mutex), at every step of a store, and wherever a task waits. Time
//! passes only when the scenario moves it, so that no timer hides a missing wake-up: a task that is not woken waits for
//! ever, and shuttle reports a deadlock. A failure prints the schedule that led to it.
//!
//! [`finds`] shows that a scenario can fail: it runs it with a [`Mutant`] in the code.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use shuttle::current::try_get_current_task;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, Runner};
use tokio::runtime::Runtime;

mod crowd;
mod keeping;
mod line;
mod permits;
mod several;
mod store;

/// A bug in the code, in unit tests only.
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
    /// The last request that asked for a permit does not pass the turn on.
    PermitTurnKept,
}

thread_local! {
    /// During an exploration: the runtime whose clock it uses. No task runs on it.
    static CLOCK: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Runs `scenario` in `times` random orders.
fn explore(times: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    run(times, config, scenario);
}

/// Asserts that `scenario` fails within `times` random orders when `mutant` is in the code.
fn finds(mutant: Mutant, times: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.failure_persistence = FailurePersistence::None;
    MUTANT.set(Some(mutant));
    let found = catch_unwind(AssertUnwindSafe(|| run(times, config, scenario)));
    MUTANT.set(None);
    assert!(found.is_err(), "{mutant:?} goes unnoticed");
}

fn run(times: usize, config: Config, scenario: impl Fn() + Send + Sync + 'static) {
    let _exploring = Exploring::begin();
    let clock = CLOCK.with_borrow(|clock| clock.as_ref().unwrap().handle().clone());
    let _clock = clock.enter();
    // A fixed seed, so that a failing test fails until it is fixed.
    let scheduler = RandomScheduler::new_from_seed(42, times);
    Runner::new(scheduler, config).run(scenario);
}

struct Exploring;

impl Exploring {
    fn begin() -> Self {
        let mut clock = tokio::runtime::Builder::new_current_thread();
        let clock = clock.enable_time().start_paused(true).build().unwrap();
        CLOCK.set(Some(clock));
        Self
    }
}

impl Drop for Exploring {
    fn drop(&mut self) {
        let clock = CLOCK.take();
        if std::thread::panicking() {
            // Dropping it would wake tasks that do not exist any more.
            std::mem::forget(clock);
        }
    }
}

/// Whether this is a task of a scenario, and not another unit test or a drop after a scenario.
pub(crate) fn is_on() -> bool {
    try_get_current_task().is_some()
}

/// Moves the time, and wakes the tasks that have slept until then.
fn pass(time: Duration) {
    CLOCK.with_borrow(|clock| clock.as_ref().unwrap().block_on(tokio::time::advance(time)));
}

/// Whether this bug is in the code.
pub(crate) fn has(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Lets other tasks run until `ready`; at least once, if there are others.
pub(crate) fn until(mut ready: impl FnMut() -> bool) {
    if is_on() {
        shuttle::thread::sleep(Duration::ZERO);
        while !ready() {
            shuttle::thread::sleep(Duration::ZERO);
        }
    }
}

/// A point at which other tasks may run, when it is dropped.
pub(crate) struct Junction;

impl Drop for Junction {
    fn drop(&mut self) {
        until(|| true);
    }
}

/// Starts a background task of the explored code; returns it if there is no exploration.
pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(task: F) -> Option<F> {
    if !is_on() {
        return Some(task);
    }
    drop(shuttle::future::spawn(task));
    None
}
