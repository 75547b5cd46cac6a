//! Runs many histories, each from its seed, and replays one of them.

use std::env;
use std::fmt::Debug;

use tower_distributed_lock::testing::{Fault, Tally};

use super::history::History;
use super::log::Counts;

/// The number of seeds after which a flaw counts as not found.
const ENOUGH: u64 = 400;

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, not `{value}`")))
}

/// The results of many histories.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    /// Whether there were many: a run of one seed may not show everything.
    pub(super) is_long: bool,
}

impl Summary {
    /// Asserts that the fault occurred: without it, the histories prove nothing.
    pub(super) fn was_struck_by(&self, fault: Fault) {
        let struck = self.tally.of(fault) > 0;
        assert!(!self.is_long || struck, "{fault:?} never struck");
    }

    /// The same for an event that the histories count.
    pub(super) fn has_counted(&self, what: &str) {
        let happened = self.counts.of(what) > 0;
        assert!(!self.is_long || happened, "`{what}` never happened");
    }

    /// Asserts that every fault occurred, and that holds overlapped.
    pub(super) fn met_everything(&self) {
        for fault in Fault::ALL {
            self.was_struck_by(fault);
        }
        self.has_counted("overlaps");
    }
}

/// Runs many seeds, or the one in the environment. `usual`: how many, unless `SIMULATION_SCHEDULES` is set. `run` gets the
/// seed, and whether a trace is wanted.
pub(super) fn try_all(
    test: &str,
    world: impl Debug,
    usual: u64,
    run: impl Fn(u64, bool) -> History,
) -> Summary {
    let only = number("SIMULATION_SEED");
    let count = number("SIMULATION_SCHEDULES").unwrap_or(usual);
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    let mut summary = Summary {
        is_long: only.is_none(),
        ..Summary::default()
    };
    for seed in seeds {
        let history = run(seed, only.is_some());
        history.trace.iter().for_each(|line| println!("{line}"));
        if let Some(violation) = history.violations.first() {
            panic!(
                "seed {seed}, {world:?}: {violation}\nshow it with\n    \
                 SIMULATION_SEED={seed} cargo test --all-features --test suite simulation::{test} -- --exact --nocapture"
            );
        }
        summary.tally = summary.tally.plus(&history.tally);
        summary.counts = summary.counts.plus(history.counts);
    }
    println!("{world:?}: {:?}; {}", summary.counts, summary.tally);
    summary
}

/// Asserts that one seed gives one history in every run. `run` traces.
pub(super) fn replay(world: impl Debug, run: impl Fn(u64) -> History) {
    for seed in 0..number("SIMULATION_SCHEDULES").unwrap_or(20) {
        let [one, other] = [(); 2].map(|()| run(seed));
        for (first, second) in one.trace.iter().zip(&other.trace) {
            assert_eq!(first, second, "seed {seed}, {world:?}");
        }
        assert!(!one.trace.is_empty(), "nothing happened");
        assert_eq!(one.trace.len(), other.trace.len(), "seed {seed}, {world:?}");
        assert_eq!(one.counts, other.counts, "seed {seed}, {world:?}");
        assert_eq!(one.tally, other.tally, "seed {seed}, {world:?}");
    }
}

/// Asserts that the flaw is found: some seed breaks the promise.
pub(super) fn find(flaw: impl Debug, promise: &str, run: impl Fn(u64) -> History) {
    assert!(
        (0..ENOUGH).any(|seed| run(seed).breaks(promise)),
        "{flaw:?} goes unnoticed: nothing breaks {promise}"
    );
}
