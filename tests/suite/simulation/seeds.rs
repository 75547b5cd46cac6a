//! Scenarios: many histories, each from its seed, and the replay of one of them.

use std::env;

use tower_distributed_lock_testing::{Fault, Tally};

use super::history::History;
use super::log::Counts;
use super::weather::Weather;
use super::world::Settings;
use crate::support::Flaw;

/// The number of seeds after which a flaw counts as not found.
const ENOUGH: u64 = 400;

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, not `{value}`")))
}

/// One way to run histories.
pub(super) struct Scenario {
    /// The module of its tests.
    pub(super) name: &'static str,
    /// How many histories a test tries, unless `SIMULATION_SCHEDULES` is set.
    pub(super) schedules: u64,
    pub(super) run: fn(Settings) -> History,
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

impl Scenario {
    /// Runs many seeds, or the one in the environment, and asserts that no promise is broken. `test`: the name of the test.
    pub(super) fn keeps_promises(&self, test: &str, weather: Weather) -> Summary {
        let only = number("SIMULATION_SEED");
        let count = number("SIMULATION_SCHEDULES").unwrap_or(self.schedules);
        let seeds = only.map_or(0..count, |seed| seed..seed + 1);
        let mut summary = Summary {
            is_long: only.is_none(),
            ..Summary::default()
        };
        for seed in seeds {
            let history = self.history(seed, weather, only.is_some());
            history.trace.iter().for_each(|line| println!("{line}"));
            if let Some(violation) = history.violations.first() {
                panic!(
                    "seed {seed}, {weather:?}: {violation}\nshow it with\n    \
                     SIMULATION_SEED={seed} cargo test -p tower-distributed-lock-tests --test suite simulation::{}::{test} -- --exact --nocapture",
                    self.name
                );
            }
            summary.tally = summary.tally.plus(&history.tally);
            summary.counts = summary.counts.plus(history.counts);
        }
        println!("{weather:?}: {:?}; {}", summary.counts, summary.tally);
        summary
    }

    /// Asserts that one seed gives one history in every run.
    pub(super) fn is_determined_by_its_seed(&self, weathers: [Weather; 2]) {
        for weather in weathers {
            for seed in 0..number("SIMULATION_SCHEDULES").unwrap_or(20) {
                let [one, other] = [(); 2].map(|()| self.history(seed, weather, true));
                for (first, second) in one.trace.iter().zip(&other.trace) {
                    assert_eq!(first, second, "seed {seed}, {weather:?}");
                }
                assert!(!one.trace.is_empty(), "nothing happened");
                assert_eq!(
                    one.trace.len(),
                    other.trace.len(),
                    "seed {seed}, {weather:?}"
                );
                assert_eq!(one.counts, other.counts, "seed {seed}, {weather:?}");
                assert_eq!(one.tally, other.tally, "seed {seed}, {weather:?}");
            }
        }
    }

    /// Asserts that each flaw is found: some seed breaks the promise.
    pub(super) fn finds(&self, flaws: &[(Flaw, &str, Weather)]) {
        for &(flaw, promise, weather) in flaws {
            self.find(flaw, promise, |_| weather);
        }
    }

    /// The same; seeds are calm and hostile in turn.
    pub(super) fn finds_in_turn(&self, flaws: &[(Flaw, &str)]) {
        for &(flaw, promise) in flaws {
            self.find(flaw, promise, |seed| match seed % 2 {
                0 => Weather::Calm,
                _ => Weather::Hostile,
            });
        }
    }

    fn find(&self, flaw: Flaw, promise: &str, weather: impl Fn(u64) -> Weather) {
        let breaks = |seed| {
            let history = (self.run)(Settings {
                seed,
                weather: weather(seed),
                flaw,
                traced: false,
            });
            history.breaks(promise)
        };
        assert!(
            (0..ENOUGH).any(breaks),
            "{flaw:?} goes unnoticed: nothing breaks {promise}"
        );
    }

    fn history(&self, seed: u64, weather: Weather, traced: bool) -> History {
        (self.run)(Settings {
            seed,
            weather,
            flaw: Flaw::None,
            traced,
        })
    }
}
