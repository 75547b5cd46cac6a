//! Histograms of waits.

use std::collections::HashMap;
use std::time::Duration;

/// The upper bounds of a histogram's buckets (milliseconds). One more bucket has longer durations.
pub(crate) const BOUNDS: [u64; 15] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000,
];

/// How many routes and modes have histograms of their own; the others share one. Only a mistake in the program
/// reaches this limit.
const MAX_SERIES: usize = 256;

/// The route that the others share.
const OTHERS: &str = "(other routes)";

/// A route and the name of a mode.
pub(crate) type Series = (&'static str, &'static str);

/// By route and mode.
#[derive(Debug, Default)]
pub(crate) struct Durations(HashMap<Series, Histogram>);

impl Durations {
    pub(crate) fn record(&mut self, series: Series, duration: Duration) {
        let series = match self.0.len() < MAX_SERIES || self.0.contains_key(&series) {
            true => series,
            false => (OTHERS, "mixed"),
        };
        self.0.entry(series).or_default().record(duration);
    }

    /// By route, then by mode.
    pub(crate) fn all(&self) -> Vec<(&Series, &Histogram)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(series, _)| *series);
        all
    }
}

/// Counts of durations by [`BOUNDS`].
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The number of durations in each bucket.
    pub(crate) buckets: [u64; BOUNDS.len() + 1],
    pub(crate) sum: Duration,
}

impl Histogram {
    fn record(&mut self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The bound of the bucket that a quantile is in; `None` if it is longer than the last bound, or nothing was counted.
    pub(crate) fn quantile(&self, per_cent: u64) -> Option<u64> {
        let rank = (self.count() * per_cent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|bucket| {
            seen += bucket;
            seen >= rank
        });
        BOUNDS.get(bucket?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_under_the_bound_that_it_does_not_pass() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 2, 3, 60_000, 60_001] {
            histogram.record(Duration::from_millis(millis));
        }
        let mut expected = [0; BOUNDS.len() + 1];
        (expected[0], expected[1], expected[2]) = (2, 1, 1);
        (expected[BOUNDS.len() - 1], expected[BOUNDS.len()]) = (1, 1);
        assert_eq!(histogram.buckets, expected);
        assert_eq!(histogram.sum, Duration::from_millis(120_007));
        assert_eq!(
            [50, 99].map(|per_cent| histogram.quantile(per_cent)),
            [Some(2), None]
        );
    }

    #[test]
    fn routes_beyond_the_bound_share_one_histogram() {
        let mut all = Durations::default();
        for n in 0..2 * MAX_SERIES {
            let route = &*Box::leak(format!("/{n}").into_boxed_str());
            all.record((route, "read"), Duration::ZERO);
        }
        let all = all.all();
        assert_eq!(all.len(), MAX_SERIES + 1);
        let others = all.iter().find(|((route, _), _)| &**route == OTHERS);
        assert_eq!(others.unwrap().1.buckets[0], MAX_SERIES as u64);
    }
}
