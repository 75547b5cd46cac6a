//! The events of one history.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use super::section::Section;

/// All tasks of a history write into it.
pub(super) struct Log {
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Orders the events of one instant.
    ticks: u64,
    /// `None`: no trace is wanted.
    trace: Option<Vec<String>>,
    violations: Vec<Violation>,
    sections: Vec<Section>,
    counts: Counts,
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// The name in the guarantees: `S1` to `S10`, `L1` to `L9`.
    pub(super) promise: &'static str,
    pub(super) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.text)
    }
}

/// The number of events, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub(super) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub(super) fn plus(mut self, other: Self) -> Self {
        for (what, times) in other.0 {
            self.add(what, times);
        }
        self
    }
}

impl Log {
    pub(super) fn new(traced: bool) -> Self {
        Self {
            began: Instant::now(),
            inner: Mutex::new(Inner {
                trace: traced.then(Vec::new),
                ..Inner::default()
            }),
        }
    }

    /// A tick that is later than all earlier ones.
    pub(super) fn tick(&self) -> u64 {
        let mut inner = self.inner();
        inner.ticks += 1;
        inner.ticks
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        let mut inner = self.inner();
        let tick = inner.ticks;
        if let Some(trace) = &mut inner.trace {
            let at = self.began.elapsed();
            trace.push(format!("{at:>12?} {tick:>5} {}", line()));
        }
    }

    pub(super) fn violated(&self, promise: &'static str, text: String) {
        self.note(|| format!("VIOLATION {promise}: {text}"));
        let violation = Violation { promise, text };
        self.inner().violations.push(violation);
    }

    pub(super) fn section(&self, section: Section) {
        self.inner().sections.push(section);
    }

    pub(super) fn count(&self, what: &'static str) {
        self.inner().counts.add(what, 1);
    }

    /// The violations and sections, at the end.
    pub(super) fn close(&self) -> (Vec<Violation>, Vec<Section>, Counts, Vec<String>) {
        let inner = std::mem::take(&mut *self.inner());
        let trace = inner.trace.unwrap_or_default();
        (inner.violations, inner.sections, inner.counts, trace)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

/// A short id that is the same in every run of a seed: clients have different ids each time.
pub(super) fn short(id: impl fmt::Display) -> String {
    let id = id.to_string();
    let n = id.rsplit(':').next().unwrap_or_default();
    format!("#{n}")
}
