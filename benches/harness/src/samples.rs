//! Statistics of repeated measurements.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// The median of several measurements; of an even number, the smaller of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get((sorted.len().max(1) - 1) / 2)
        .copied()
        .unwrap_or(f64::NAN)
}

/// The median of the ratios of neighbouring measurements, so that the load of the machine affects both sides.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(&ratios(ours, theirs))
}

/// The range of the ratios of neighbouring measurements, without the highest and the lowest tenth.
pub(crate) fn spread(ours: &[f64], theirs: &[f64]) -> String {
    let mut ratios = ratios(ours, theirs);
    ratios.sort_by(f64::total_cmp);
    let tenth = ratios.len() / 10;
    match &ratios[tenth..ratios.len() - tenth] {
        [lowest, .., highest] => format!("{} to {}", digits(*lowest), digits(*highest)),
        _ => "one".into(),
    }
}

fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs.map(|(ours, theirs)| ours / theirs).collect()
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// The smallest share, as a part of an equal one.
pub(crate) fn smallest_share(shares: &[u64]) -> f64 {
    let smallest = shares.iter().min().copied().unwrap_or(0);
    smallest as f64 * shares.len() as f64 / shares.iter().sum::<u64>() as f64
}

/// A histogram of durations, with three digits.
#[derive(Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new(3).expect("three digits are possible"))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        // It grows as needed; only a latency of centuries does not fit.
        let _ = self.0.record(latency.as_nanos() as u64);
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("a histogram that grows takes any other");
    }

    pub(crate) fn at(&self, percentile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percentile))
    }

    pub(crate) fn median(&self) -> Duration {
        self.at(50.0)
    }

    pub(crate) fn worst(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// As one word, for [`decode`](Self::decode) in another process.
    pub(crate) fn encode(&self) -> String {
        let values = self.0.iter_recorded();
        let words =
            values.map(|value| format!("{}:{}", value.value_iterated_to(), value.count_at_value()));
        words.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn decode(word: &str) -> Result<Self> {
        let mut latencies = Self::new();
        for value in word.split(',').filter(|value| !value.is_empty()) {
            let (value, count) = value.split_once(':').context("not a latency")?;
            latencies.0.record_n(value.parse()?, count.parse()?)?;
        }
        Ok(latencies)
    }
}

impl Display for Latencies {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [50.0, 99.0].map(|percentile| Time(self.at(percentile)));
        write!(f, "p50 {p50}, p99 {p99}, worst {}", Time(self.worst()))
    }
}

/// A duration with three digits.
pub(crate) struct Time(pub(crate) Duration);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos() as f64;
        let (value, unit) = match nanos {
            nanos if nanos < 1e3 => (nanos, "ns"),
            nanos if nanos < 1e6 => (nanos / 1e3, "µs"),
            nanos if nanos < 1e9 => (nanos / 1e6, "ms"),
            nanos => (nanos / 1e9, "s"),
        };
        write!(f, "{} {unit}", digits(value))
    }
}

/// A rate per second.
pub(crate) struct Rate(pub(crate) f64);

impl Display for Rate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 1e6 => write!(f, "{} M/s", digits(rate / 1e6)),
            rate if rate >= 1e4 => write!(f, "{} k/s", digits(rate / 1e3)),
            rate => write!(f, "{rate:.0}/s"),
        }
    }
}

/// Three digits, or all before the point.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
