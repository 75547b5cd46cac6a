//! The history of one seed.

use tower_distributed_lock_testing::Tally;

use super::log::{Counts, Log, Violation};
use super::section::judge;
use super::weather::Weather;

pub(super) struct History {
    pub(super) violations: Vec<Violation>,
    pub(super) counts: Counts,
    pub(super) tally: Tally,
    pub(super) trace: Vec<String>,
}

impl History {
    /// Runs a history on paused time. The seed determines it.
    pub(super) fn of<T>(seed: u64, happens: impl Future<Output = T>) -> T {
        // The client draws its jitter from the thread's generator.
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(happens)
    }

    /// Ends a history: nothing more is written into `log`.
    pub(super) fn conclude(log: &Log, weather: Weather, tally: Tally) -> Self {
        let (mut violations, sections, mut counts, trace) = log.close();
        let verdict = judge(sections, |_, _| weather.keeps_data());
        for (promise, one, other) in &verdict.broken {
            let text = format!("{one:?} and {other:?}");
            violations.push(Violation { promise, text });
        }
        if verdict.sections > 0 {
            counts.add("overlaps", verdict.overlaps);
        }
        Self {
            violations,
            counts,
            tally,
            trace,
        }
    }

    pub(super) fn breaks(&self, promise: &str) -> bool {
        let mut violations = self.violations.iter();
        violations.any(|violation| violation.promise == promise)
    }
}
