//! Runs a scenario in many orders.

use std::cell::RefCell;
use std::time::Duration;

use shuttle::current::try_get_current_task;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, Runner};
use tokio::runtime::Runtime;

#[cfg(mutants)]
use super::Mutant;

thread_local! {
    /// During an exploration: the runtime whose clock it uses. No task runs on it.
    static CLOCK: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Runs `scenario` in `times` random orders.
pub(super) fn explore(times: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    run(times, config, scenario);
}

/// Asserts that `scenario` fails within `times` random orders when `mutant` is in the code.
#[cfg(mutants)]
pub(super) fn finds(mutant: Mutant, times: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.failure_persistence = FailurePersistence::None;
    super::is_found(mutant, || run(times, config, scenario));
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

/// Moves the time, and wakes the tasks that have slept until then.
pub(super) fn pass(time: Duration) {
    CLOCK.with_borrow(|clock| clock.as_ref().unwrap().block_on(tokio::time::advance(time)));
}

/// Lets the other tasks of the scenario run.
pub(super) fn let_others_run() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// Starts a task of the scenario.
pub(super) fn start(task: impl Future<Output = ()> + Send + 'static) {
    drop(shuttle::future::spawn(task));
}

/// Whether this is a task of a scenario, and not another unit test or a drop after a scenario.
pub(crate) fn is_on() -> bool {
    try_get_current_task().is_some()
}
