//! Runs unit tests in many orders of events.
//!
//! [`explore`] runs a scenario many times. Its tasks run in a new order each time, which [`shuttle`] chooses: at every
//! lock and unlock of a [`sync::Mutex`](crate::sync::Mutex), at every step of a store, and wherever a task waits. Time
//! passes only when the scenario moves it, so that no timer hides a missing wake-up: a task that is not woken waits for
//! ever, and shuttle reports a deadlock. A failure prints the schedule that led to it.
//!
//! `finds` shows that a scenario can fail: it runs it with a `Mutant` in the code. `scripts/mutants` plants them, in a copy of the sources,
//! and compiles with `--cfg mutants`.
//!
//! Scenarios run only with `--cfg shuttle`, because only they need that crate. A test of one order of events writes it down: it
//! answers a [`script`].

#[cfg(mutants)]
pub(crate) use mutants::{Mutant, has, is_found};
#[cfg(all(mutants, shuttle))]
use runner::finds;
pub(crate) use runner::is_on;
#[cfg(shuttle)]
use runner::{explore, pass};

#[cfg(shuttle)]
mod crowd;
#[cfg(shuttle)]
mod keeping;
#[cfg(shuttle)]
mod line;
#[cfg(mutants)]
mod mutants;
#[cfg(shuttle)]
mod permits;
#[cfg(shuttle)]
mod processes;
#[cfg(shuttle)]
mod runner;
#[cfg(not(shuttle))]
#[path = "exploration/no_runner.rs"]
mod runner;
pub(crate) mod script;
#[cfg(shuttle)]
mod several;
#[cfg(shuttle)]
mod shutdown;
#[cfg(shuttle)]
mod store;

/// Lets other tasks run until `ready`; at least once, if there are others.
pub(crate) fn until(mut ready: impl FnMut() -> bool) {
    if is_on() {
        runner::let_others_run();
        while !ready() {
            runner::let_others_run();
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
    runner::start(task);
    None
}
