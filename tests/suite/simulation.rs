//! Thousands of histories on paused time, with faults; each follows from its seed.
//!
//! Callers of two clients take random locks in every mode, over a store that loses, delays, repeats and forgets, and each
//! answer is compared with what the guarantees allow. A seed that fails is printed with the command that replays it and shows
//! its trace. `SIMULATION_SCHEDULES=100000` makes a longer run.

mod book;
mod caller;
mod flawed;
mod impatient;
mod leaving;
mod log;
mod plan;
#[path = "../../examples/torture/section.rs"]
pub(crate) mod section;
mod waits;
mod witness;
mod world;

use std::env;

use flawed::Flaw;
use tower_distributed_lock::testing::{Fault, Tally};
use world::{History, Weather, run};

/// How many histories a test tries, unless `SIMULATION_SCHEDULES` says otherwise.
const SCHEDULES: u64 = 500;

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, not `{value}`")))
}

/// What many histories came to.
#[derive(Default)]
struct Summary {
    overlaps: u64,
    tally: Tally,
    counts: log::Counts,
}

/// Tries many seeds, or the one that is asked for.
fn schedules(test: &str, weather: Weather) -> Summary {
    let only = number("SIMULATION_SEED");
    let count = number("SIMULATION_SCHEDULES").unwrap_or(SCHEDULES);
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    let mut summary = Summary::default();
    for seed in seeds {
        let history = run(seed, weather, Flaw::None, only.is_some());
        history.trace.iter().for_each(|line| println!("{line}"));
        if let Some(violation) = history.violations.first() {
            panic!(
                "seed {seed}, {weather:?}: {violation}\nshow it with\n    \
                 SIMULATION_SEED={seed} cargo test --all-features --test suite simulation::{test} -- --exact --nocapture"
            );
        }
        summary.overlaps += history.overlaps;
        summary.tally = summary.tally.plus(&history.tally);
        summary.counts = summary.counts.plus(history.counts);
    }
    println!(
        "{weather:?}: {} overlaps, {:?}; {}",
        summary.overlaps, summary.counts, summary.tally
    );
    summary
}

/// A run of one seed need not show everything.
fn is_long() -> bool {
    number("SIMULATION_SEED").is_none()
}

#[test]
fn a_distant_store_keeps_nobody_waiting_and_lets_nobody_overlap() {
    let seen = schedules(
        "a_distant_store_keeps_nobody_waiting_and_lets_nobody_overlap",
        Weather::Calm,
    );
    assert!(!is_long() || seen.counts.confirmed > 0);
}

#[test]
fn lost_wake_ups_cost_a_poll_and_no_more() {
    let seen = schedules("lost_wake_ups_cost_a_poll_and_no_more", Weather::Deaf);
    assert!(!is_long() || seen.tally.of(Fault::WakeupLost) > 0);
}

#[test]
fn a_bad_network_breaks_no_promise() {
    let seen = schedules("a_bad_network_breaks_no_promise", Weather::Flaky);
    assert!(!is_long() || seen.tally.of(Fault::Late) > 0);
}

#[test]
fn a_store_that_forgets_lets_no_two_confirmed_overlap() {
    let seen = schedules(
        "a_store_that_forgets_lets_no_two_confirmed_overlap",
        Weather::Hostile,
    );
    if is_long() {
        for fault in Fault::ALL {
            assert!(seen.tally.of(fault) > 0, "{fault:?} never struck");
        }
        assert!(seen.overlaps > 0, "without any overlap, nothing was proved");
    }
}

#[test]
fn one_seed_is_one_history() {
    for (seed, weather) in
        (0..20).flat_map(|seed| [Weather::Calm, Weather::Hostile].map(|weather| (seed, weather)))
    {
        let histories = [(); 2].map(|()| run(seed, weather, Flaw::None, true));
        let [one, other] = &histories;
        for (first, second) in one.trace.iter().zip(&other.trace) {
            assert_eq!(first, second, "seed {seed}, {weather:?}");
        }
        assert_eq!(one.trace.len(), other.trace.len(), "seed {seed}");
        assert_eq!(one.tally, other.tally, "seed {seed}");
    }
}

/// The first violation that a flaw leads to.
fn found(flaw: Flaw, promise: &str) -> History {
    const ENOUGH: u64 = 400;
    let weathers = [Weather::Calm, Weather::Hostile];
    let histories = (0..ENOUGH).flat_map(|seed| weathers.map(|weather| (seed, weather)));
    let mut histories = histories.map(|(seed, weather)| run(seed, weather, flaw, false));
    let breaks = |history: &History| {
        let mut violations = history.violations.iter();
        violations.any(|violation| violation.promise == promise)
    };
    histories
        .find(breaks)
        .unwrap_or_else(|| panic!("{flaw:?} goes unnoticed: nothing breaks {promise}"))
}

#[test]
fn every_flaw_is_found() {
    for (flaw, promise) in [
        (Flaw::GrantsTwice, "S1"),
        (Flaw::ReleasesOthers, "S2"),
        (Flaw::Resurrects, "S3"),
        (Flaw::ShortLease, "S4"),
        (Flaw::Confirms, "S5"),
        (Flaw::Confirms, "S7"),
        (Flaw::Confirms, "S9"),
        (Flaw::RepeatsTokens, "S6"),
        (Flaw::KeepsAPart, "S8"),
        (Flaw::Sleepy, "L2"),
        (Flaw::ForgetsWithdrawals, "L7"),
        (Flaw::KeepsListeners, "L8"),
    ] {
        found(flaw, promise);
    }
}
