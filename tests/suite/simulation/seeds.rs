//! Many histories, each from its seed, and how to see one of them again.

use std::env;
use std::fmt::Debug;

use tower_distributed_lock::testing::{Fault, Tally};

use super::history::History;
use super::log::Counts;

/// How many seeds are tried until a flaw counts as unnoticed.
const ENOUGH: u64 = 400;

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, not `{value}`")))
}

/// What many histories came to.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    /// Whether there were many: a run of one seed need not show everything.
    pub(super) is_long: bool,
}

impl Summary {
    /// The fault has struck: without that, many histories would have proved nothing.
    pub(super) fn was_struck_by(&self, fault: Fault) {
        let struck = self.tally.of(fault) > 0;
        assert!(!self.is_long || struck, "{fault:?} never struck");
    }

    /// The same of something that the histories count.
    pub(super) fn has_counted(&self, what: &str) {
        let happened = self.counts.of(what) > 0;
        assert!(!self.is_long || happened, "`{what}` never happened");
    }

    /// Every fault has struck, and holds have overlapped.
    pub(super) fn met_everything(&self) {
        for fault in Fault::ALL {
            self.was_struck_by(fault);
        }
        self.has_counted("overlaps");
    }
}

/// Tries many seeds, or the one that is asked for. `usual`: how many, unless `SIMULATION_SCHEDULES` says otherwise. `run` is
/// told the seed, and whether a trace is wanted.
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

/// One seed is one history, however often it happens. `run` traces.
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

/// A flaw is found: some seed breaks the promise.
pub(super) fn find(flaw: impl Debug, promise: &str, run: impl Fn(u64) -> History) {
    assert!(
        (0..ENOUGH).any(|seed| run(seed).breaks(promise)),
        "{flaw:?} goes unnoticed: nothing breaks {promise}"
    );
}
