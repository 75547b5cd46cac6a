//! The report of a run, as a table with a fixed format.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::blow::Scores;
use crate::event::{Ending, Missed, Mode};
use crate::history::History;
use crate::options::{Options, Store};
use crate::section::Verdict;

/// Every checked promise, and what would break it.
const PROMISES: [(&str, &str); 8] = [
    ("S1", "two held one key while the store kept its data"),
    ("S5", "two that were confirmed overlapped"),
    ("S6", "a later grant had no larger token"),
    ("S7", "a reader and a writer that were confirmed overlapped"),
    ("L4", "a wait outlived its budget"),
    ("L6", "a lock could not be taken when the faults were over"),
    ("L8", "something was left"),
    ("L9", "a hold outlived its longest time"),
];

pub(crate) struct Report {
    store: Store,
    procs: usize,
    seed: u64,
    time: Duration,
    scores: Scores,
    history: History,
    verdict: Verdict,
    broken: BTreeMap<String, Vec<String>>,
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        time: Duration,
        scores: Scores,
        mut history: History,
    ) -> Self {
        let verdict = history.verdict();
        let mut broken = BTreeMap::<String, Vec<String>>::new();
        let unfinished = options.procs as u64 - history.done;
        if unfinished > 0 {
            let text = format!("{unfinished} workers did not come to their end");
            broken.entry("L6".into()).or_default().push(text);
        }
        for (promise, text) in std::mem::take(&mut history.broken) {
            broken.entry(promise).or_default().push(text);
        }
        for (promise, one, other) in &verdict.broken {
            let text = format!("{one:?} and {other:?}");
            broken.entry((*promise).into()).or_default().push(text);
        }
        Self {
            store: options.store,
            procs: options.procs,
            seed: options.seed,
            time,
            scores,
            history,
            verdict,
            broken,
        }
    }

    /// Why the run proves nothing, or which promises were broken; empty if there is no problem.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let broken = self.broken.iter().map(|(promise, texts)| {
            let first = &texts[0];
            format!("{promise} was broken {} times, first: {first}", texts.len())
        });
        let idle = self.scores.iter().filter(|(_, score)| score.hit == 0);
        let idle = idle.map(|(name, _)| format!("`{name}` never hit"));
        let mut complaints: Vec<_> = broken.chain(idle).collect();
        if self.verdict.overlaps == 0 {
            complaints.push("no two sections overlapped: nothing is proved about S5".into());
        }
        complaints
    }
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { history, .. } = self;
        writeln!(
            f,
            "torture: {}, {} {}, {:.0} s, seed {}\n",
            self.store.as_str(),
            self.procs,
            if matches!(self.store, Store::Memory | Store::Postgres) {
                "clients"
            } else {
                "processes"
            },
            self.time.as_secs_f64(),
            self.seed
        )?;
        writeln!(f, "{:<28}{:>10}", "operations", history.operations())?;
        for mode in Mode::ALL {
            let granted = history.granted.get(&mode).copied().unwrap_or_default();
            if granted > 0 {
                let worst = history.worst_wait.get(&mode).copied().unwrap_or_default();
                let name = format!("  granted, {}", format!("{mode:?}").to_lowercase());
                writeln!(f, "{name:<28}{granted:>10}  longest wait {}", millis(worst))?;
            }
        }
        for (missed, name) in [
            (Missed::Busy, "  refused, busy"),
            (Missed::Unavailable, "  refused, unavailable"),
            (Missed::Cancelled, "  cancelled"),
            (Missed::Other, "  refused, other"),
        ] {
            let count = history.missed.get(&missed).copied().unwrap_or_default();
            writeln!(f, "{name:<28}{count:>10}")?;
        }
        writeln!(f, "{:<28}{:>10}", "sections", self.verdict.sections)?;
        for (ending, name) in [
            (Ending::Confirmed, "  confirmed"),
            (Ending::Lost, "  lost"),
            (Ending::Unknown, "  unconfirmed"),
            (Ending::Dropped, "  dropped"),
            (Ending::Killed, "  killed"),
        ] {
            let count = history.endings.get(&ending).copied().unwrap_or_default();
            writeln!(f, "{name:<28}{count:>10}")?;
        }
        let worst = millis(history.worst_release);
        writeln!(f, "{:<28}{worst:>10}", "longest release")?;
        writeln!(f, "{:<28}{:>10}", "raw overlaps", self.verdict.overlaps)?;
        writeln!(
            f,
            "\n{:<28}{:>10}{:>10}  a hit is when",
            "fault", "struck", "hit"
        )?;
        for (name, score) in &self.scores {
            let (struck, hit, meaning) = (score.struck, score.hit, score.meaning);
            writeln!(f, "{name:<28}{struck:>10}{hit:>10}  {meaning}")?;
        }
        writeln!(
            f,
            "\n{:<28}{:>10}  it would be broken if",
            "promise", "broken"
        )?;
        for (promise, meaning) in PROMISES {
            let count = self.broken.get(promise).map_or(0, Vec::len);
            writeln!(f, "{promise:<28}{count:>10}  {meaning}")?;
        }
        for (promise, texts) in &self.broken {
            if PROMISES.iter().all(|(known, _)| known != promise) {
                writeln!(f, "{promise:<28}{:>10}  {}", texts.len(), texts[0])?;
            }
        }
        Ok(())
    }
}
