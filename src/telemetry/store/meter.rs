//! Measures this process's connections to Redis, for a console.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::sync::Mutex;
use crate::telemetry::connection_use::USES;
use crate::telemetry::journal::quantile;

/// How many seconds are kept: the last minute, and room for the current second.
const SECONDS: usize = 64;

/// The upper bounds of the buckets of latencies, in microseconds: powers of two up to 1 s. The last bucket has longer
/// latencies.
const BUCKETS: usize = 17;
const FIRST: u64 = 32;

/// Connections are always counted, latencies only while a console exists.
static METERS: [Meter; USES.len()] = [const { Meter::new() }; USES.len()];
static WATCHED: AtomicBool = AtomicBool::new(false);
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The counts of one use. The mutex protects the latencies: a place has the counts of one second, and is emptied when an answer of
/// another second comes.
struct Meter {
    up: AtomicU64,
    opened: AtomicU64,
    failed: AtomicU64,
    unanswered: AtomicU64,
    seconds: Mutex<[Second; SECONDS]>,
}

/// The answers of one second. The first answer of another second takes the place of the counts.
#[derive(Clone, Copy)]
struct Second {
    number: u64,
    sum: u64,
    longest: u64,
    buckets: [u64; BUCKETS],
}

/// The connections of one use.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectionUse {
    carries: &'static str,
    up: u64,
    opened: u64,
    failed: u64,
    unanswered: u64,
    last_minute: LastMinute,
}

/// The latencies of the last minute, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct LastMinute {
    answers: u64,
    mean_us: u64,
    /// The upper bound of the median's bucket, or `longest_us` if that is less.
    median_us: u64,
    p99_us: u64,
    longest_us: u64,
}

/// Starts to measure latencies.
pub(crate) fn watch() {
    LazyLock::force(&BEGAN);
    WATCHED.store(true, Ordering::Relaxed);
}

/// The uses for which a connection was opened, or tried.
pub(crate) fn connection_uses() -> Vec<ConnectionUse> {
    let all = USES
        .iter()
        .zip(&METERS)
        .map(|(carries, meter)| meter.read(carries));
    all.filter(|used| used.opened + used.failed > 0).collect()
}

/// A connection that is up.
pub(super) struct MeteredUp(&'static Meter);

pub(super) fn connected(carries: &'static str) -> MeteredUp {
    let meter = meter(carries);
    meter.opened.fetch_add(1, Ordering::Relaxed);
    meter.up.fetch_add(1, Ordering::Relaxed);
    MeteredUp(meter)
}

impl Drop for MeteredUp {
    fn drop(&mut self) {
        self.0.up.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn failed(carries: &'static str) {
    meter(carries).failed.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn unanswered(carries: &'static str) {
    meter(carries).unanswered.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn answered(carries: &'static str, since: Instant) {
    if WATCHED.load(Ordering::Relaxed) {
        let now = Instant::now();
        meter(carries).record(seconds(now), now.saturating_duration_since(since));
    }
}

fn meter(carries: &'static str) -> &'static Meter {
    let place = USES.iter().position(|used| *used == carries);
    &METERS[place.unwrap_or_default()]
}

/// The number of the second, from 1.
fn seconds(now: Instant) -> u64 {
    1 + now.saturating_duration_since(*BEGAN).as_secs()
}

impl Meter {
    const fn new() -> Self {
        Self {
            up: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            seconds: Mutex::new([Second::empty(0); SECONDS]),
        }
    }

    fn record(&self, number: u64, took: Duration) {
        let place = usize::try_from(number % SECONDS as u64).unwrap_or_default();
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let second = &mut self.seconds.lock()[place];
        if second.number != number {
            *second = Second::empty(number);
        }
        second.sum = second.sum.saturating_add(micros);
        second.longest = second.longest.max(micros);
        second.buckets[bucket(micros)] += 1;
    }

    fn read(&self, carries: &'static str) -> ConnectionUse {
        ConnectionUse {
            carries,
            up: self.up.load(Ordering::Relaxed),
            opened: self.opened.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            unanswered: self.unanswered.load(Ordering::Relaxed),
            last_minute: self.last_minute(seconds(Instant::now())),
        }
    }

    fn last_minute(&self, now: u64) -> LastMinute {
        let (mut buckets, mut sum, mut longest) = ([0; BUCKETS], 0_u64, 0);
        let seconds = *self.seconds.lock();
        for second in seconds.iter().filter(|second| second.number + 60 > now) {
            sum = sum.saturating_add(second.sum);
            longest = longest.max(second.longest);
            for (count, bucket) in buckets.iter_mut().zip(second.buckets) {
                *count += bucket;
            }
        }
        let answers: u64 = buckets.iter().sum();
        let quantile = |per_cent: u64| {
            let place = quantile(&buckets, per_cent);
            let bound = place.filter(|place| *place < BUCKETS - 1);
            bound.map_or(longest, |place| longest.min(FIRST << place))
        };
        LastMinute {
            answers,
            mean_us: sum / answers.max(1),
            median_us: quantile(50),
            p99_us: quantile(99),
            longest_us: longest,
        }
    }
}

impl Second {
    const fn empty(number: u64) -> Self {
        Self {
            number,
            sum: 0,
            longest: 0,
            buckets: [0; BUCKETS],
        }
    }
}

/// The first bucket whose bound is not exceeded.
fn bucket(micros: u64) -> usize {
    let bounds = (0..BUCKETS - 1).map(|place| FIRST << place);
    bounds.take_while(|bound| *bound < micros).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minute_forgets_what_is_older() {
        let meter = Meter::new();
        meter.record(1, Duration::from_secs(9));
        for second in 2..=61 {
            for micros in [40, 50, 1000] {
                meter.record(second, Duration::from_micros(micros));
            }
        }
        let last = meter.last_minute(61);
        assert_eq!(last.answers, 180);
        assert_eq!(
            [last.median_us, last.p99_us, last.longest_us],
            [64, 1000, 1000]
        );
        assert_eq!(meter.last_minute(1000).answers, 0);
    }

    #[test]
    fn a_latency_beyond_the_last_bound_is_not_shown_as_a_shorter_one() {
        let meter = Meter::new();
        meter.record(1, Duration::from_secs(9));
        let last = meter.last_minute(1);
        assert_eq!([last.median_us, last.p99_us], [9_000_000; 2]);
    }

    #[test]
    fn a_second_that_is_counted_again_starts_from_zero() {
        let meter = Meter::new();
        meter.record(1, Duration::from_millis(1));
        meter.record(1 + SECONDS as u64, Duration::from_millis(2));
        assert_eq!(meter.last_minute(1 + SECONDS as u64).answers, 1);
    }
}
