//! Histograms of waits and holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::Mutex;
use crate::telemetry::{Labels, Route};

/// The upper bounds of a histogram's buckets (milliseconds). One more bucket has longer durations.
pub(crate) const BOUNDS: [u64; 15] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000,
];

/// How many routes and modes have histograms of their own; the others share one. Only a mistake in the program
/// reaches this limit.
const MOST: usize = 256;

/// The route that the others share.
const OTHERS: &str = "(other routes)";

/// The histograms of one route and mode.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    pub(crate) waits: Histogram,
    pub(crate) holds: Histogram,
}

/// By route and mode. The mutex protects the map only: the histograms are atomic.
#[derive(Debug, Default)]
pub(super) struct AllDurations(Mutex<HashMap<Labels, Arc<Durations>>>);

impl AllDurations {
    pub(super) fn of(&self, labels: &Labels) -> Arc<Durations> {
        let mut known = self.0.lock();
        if let Some(durations) = known.get(labels) {
            return durations.clone();
        }
        let labels = match known.len() < MOST {
            true => labels.clone(),
            false => Labels(Route::new(Some(OTHERS)), "mixed"),
        };
        known.entry(labels).or_default().clone()
    }

    /// By route, then by mode.
    pub(super) fn all(&self) -> Vec<(Labels, Arc<Durations>)> {
        let mut all: Vec<_> = self.0.lock().clone().into_iter().collect();
        all.sort_by(|(Labels(a, m), _), (Labels(b, n), _)| (a.as_str(), m).cmp(&(b.as_str(), n)));
        all
    }
}

/// Counts of durations by [`BOUNDS`].
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// In microseconds.
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    /// The number of durations in each bucket.
    pub(crate) fn counts(&self) -> [u64; BOUNDS.len() + 1] {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }

    pub(crate) fn sum(&self) -> Duration {
        Duration::from_micros(self.sum.load(Ordering::Relaxed))
    }
}

/// The bucket of a histogram that a quantile is in; `None` if nothing was counted.
pub(crate) fn quantile(buckets: &[u64], per_cent: u64) -> Option<usize> {
    let count: u64 = buckets.iter().sum();
    let rank = (count * per_cent).div_ceil(100).max(1);
    let mut seen = 0;
    buckets.iter().position(|bucket| {
        seen += bucket;
        seen >= rank
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_under_the_bound_that_it_does_not_pass() {
        let histogram = Histogram::default();
        for millis in [0, 1, 2, 3, 60_000, 60_001] {
            histogram.record(Duration::from_millis(millis));
        }
        let mut expected = [0; BOUNDS.len() + 1];
        (expected[0], expected[1], expected[2]) = (2, 1, 1);
        (expected[BOUNDS.len() - 1], expected[BOUNDS.len()]) = (1, 1);
        assert_eq!(histogram.counts(), expected);
        assert_eq!(histogram.sum(), Duration::from_millis(120_007));
    }

    #[test]
    fn routes_beyond_the_bound_share_one_histogram() {
        let all = AllDurations::default();
        for n in 0..2 * MOST {
            let route = Route::new(Some(&format!("/{n}")));
            all.of(&Labels(route, "read")).waits.record(Duration::ZERO);
        }
        let all = all.all();
        assert_eq!(all.len(), MOST + 1);
        let others = all.iter().find(|(labels, _)| labels.0.as_str() == OTHERS);
        let (_, others) = others.unwrap();
        assert_eq!(others.waits.counts()[0], MOST as u64);
    }
}
