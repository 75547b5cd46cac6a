//! When a refused client may try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry::Route;

/// The weight of a new time in the average: one eighth.
const WEIGHT: u64 = 8;

/// The longest estimate before it is spread: most holds are released long before the end of their lease.
const CAP: Duration = Duration::from_secs(10);

/// Clients that are refused together are spread over at least this long.
const SPREAD: Duration = Duration::from_secs(2);

/// How many averages a layer keeps. Of ten routes, two share one with a probability of one half.
const SLOTS: usize = 64;

/// How long the requests of a layer hold their locks: a moving average for each route, in microseconds; 0 before the first
/// measurement.
///
/// It is an estimate: of two concurrent updates one may be lost, and two routes may share an average.
#[derive(Debug)]
pub(crate) struct HoldTimes([AtomicU64; SLOTS]);

impl Default for HoldTimes {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl HoldTimes {
    fn add(&self, route: &Route, held: Duration) {
        let held = u64::try_from(held.as_micros()).unwrap_or(u64::MAX).max(1);
        let slot = self.slot(route);
        let next = match slot.load(Ordering::Relaxed) {
            0 => held,
            average => (average - average / WEIGHT).saturating_add(held / WEIGHT),
        };
        slot.store(next.max(1), Ordering::Relaxed);
    }

    /// Zero before the first measurement.
    pub(super) fn average(&self, route: &Route) -> Duration {
        Duration::from_micros(self.slot(route).load(Ordering::Relaxed))
    }

    fn slot(&self, route: &Route) -> &AtomicU64 {
        // FNV-1a: the names are the program's own, and a request has no time for a better one.
        let template = route.template().unwrap_or_default();
        let hash = template.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        &self.0[hash as usize % SLOTS]
    }
}

/// A hold of a layer, from its grant to its end. Its time is added to those of the layer when it is dropped.
pub(crate) struct TimedHold {
    pub(super) waited: Duration,
    pub(super) granted: Instant,
    /// Once it has ended.
    pub(super) held: Option<Duration>,
    pub(super) route: Route,
    pub(super) hold_times: Arc<HoldTimes>,
}

impl TimedHold {
    /// Ends it, unless it has ended, and returns its time.
    pub(crate) fn end(&mut self) -> Duration {
        let granted = self.granted;
        *self.held.get_or_insert_with(|| granted.elapsed())
    }
}

impl Drop for TimedHold {
    fn drop(&mut self) {
        let held = self.end();
        self.hold_times.add(&self.route, held);
    }
}

/// Whole seconds, at least one: `after`, plus a random part of up to the same length, so that clients that are refused
/// together do not return together.
pub(crate) fn retry_after(after: Duration) -> Duration {
    let after = after.min(CAP);
    let spread = after.max(SPREAD).mul_f64(fastrand::f64());
    let seconds = (after + spread).as_millis().div_ceil(1000).max(1);
    Duration::from_secs(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_what_is_measured_and_each_route_has_its_own() {
        let times = HoldTimes::default();
        let route = &Route::new(Some("/orders/{id}"));
        assert_eq!(times.average(route), Duration::ZERO);
        times.add(route, Duration::from_secs(8));
        assert_eq!(times.average(route), Duration::from_secs(8));
        for _ in 0..100 {
            times.add(route, Duration::from_millis(50));
        }
        let average = times.average(route);
        assert!((40..60).contains(&average.as_millis()), "{average:?}");
        times.add(route, Duration::MAX);
        assert!(times.average(route) > Duration::from_secs(1));
        assert_eq!(
            times.average(&Route::new(Some("/exports/{id}"))),
            Duration::ZERO
        );
    }

    #[test]
    fn clients_are_spread_over_at_least_two_seconds_and_at_most_twice_the_time() {
        for (after, times) in [
            (0, 1..=2),
            (50, 1..=3),
            (4_000, 4..=8),
            (3_600_000, 10..=20),
        ] {
            let mut seen = std::collections::HashSet::new();
            for _ in 0..1_000 {
                let seconds = retry_after(Duration::from_millis(after)).as_secs();
                assert!(times.contains(&seconds), "{after} ms: {seconds} s");
                seen.insert(seconds);
            }
            assert!(seen.len() > 1, "{after} ms");
        }
    }
}
