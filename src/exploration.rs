//! Unit tests in every order of events.
//!
//! [`explore`] runs a scenario many times. Its tasks take turns in an order that [`shuttle`] chooses anew each time: at
//! every lock and unlock of a [`sync::Mutex`](crate::sync::Mutex), at every step of a store, and wherever a task waits.
//! Time stands still, unless the scenario moves it, so that no timer ever helps: a task that is not woken waits for ever,
//! and shuttle reports a deadlock. A failure prints the schedule that led to it.
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
mod several;
mod store;

/// A bug that is put into the code, in unit tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A waiter that is cancelled when it has just been given the hold or the turn takes it along.
    GiftKept,
    /// A request for any of several keys sleeps on when it is given one of them in the process.
    GiftUnseen,
    /// A request that gives its turn up does not pass it on.
    TurnKept,
    /// A hold is passed on though it is lost, or nearly.
    LostPassedOn,
    /// A newcomer stands in front of the queue.
    LastInFirstOut,
    /// A hold that is passed on keeps its fencing token.
    TokenKept,
    /// A release that succeeds makes good a hold that was lost.
    LossUndone,
    /// Of two requests of an owner, only the first is answered.
    SiblingForgotten,
    /// A renewal is believed however late it is answered.
    LateRenewal,
    /// What frees a key wakes no process in line.
    WakesNone,
    /// A process that is dead keeps its place in line, and is woken.
    WakesTheDead,
    /// A process that was woken and gives up does not wake the next one.
    LosesTheTurn,
}

thread_local! {
    /// While something is explored: the runtime whose clock it goes by. Nothing runs there.
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
    // Not the seed of the day: a test that fails does so until it is mended.
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
            // Those who sleep there would be woken, and are no more.
            std::mem::forget(clock);
        }
    }
}

/// Whether this is a task of a scenario: neither another unit test, nor what is dropped when a scenario is over.
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

/// Lets others go first until `ready`; at least once, if there are others.
pub(crate) fn until(mut ready: impl FnMut() -> bool) {
    if is_on() {
        shuttle::thread::sleep(Duration::ZERO);
        while !ready() {
            shuttle::thread::sleep(Duration::ZERO);
        }
    }
}

/// A point at which others may go first, when it is dropped.
pub(crate) struct Junction;

impl Drop for Junction {
    fn drop(&mut self) {
        until(|| true);
    }
}

/// Starts a background task of the explored code; gives it back if nothing is explored.
pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(task: F) -> Option<F> {
    if !is_on() {
        return Some(task);
    }
    drop(shuttle::future::spawn(task));
    None
}
