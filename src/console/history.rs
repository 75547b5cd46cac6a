//! Events, durations and contended keys since the console exists.

use serde::Serialize;

use super::{millis, problem};
use crate::client::LockClient;
use crate::lock::LockKey;
use crate::telemetry::{self, Event, EventCause, Histogram};

/// How many contended keys are shown.
const HOTTEST: usize = 20;

/// `api/events`.
#[derive(Debug, Serialize)]
pub(super) struct EventsJson {
    /// The number of losses since the console exists.
    lost: u64,
    refused: u64,
    broken: u64,
    /// The number of the latest.
    pub(super) last: u64,
    /// The latest first.
    events: Vec<EventJson>,
}

#[derive(Debug, Serialize)]
struct EventJson {
    number: u64,
    /// Since 1970.
    at_ms: u64,
    /// `lost`, `refused` or `broken`.
    kind: &'static str,
    /// Of a refusal: `contended`, `overloaded`, `unavailable`, `conflict`, `shutdown`, `lost` or `misused`.
    outcome: Option<&'static str>,
    key: LockKey,
    mode: Option<&'static str>,
    route: String,
    cause: String,
    waited_ms: Option<u64>,
}

/// `api/durations`.
#[derive(Debug, Serialize)]
pub(super) struct DurationsJson {
    /// The upper bounds of the buckets; one more bucket has longer durations.
    bounds_ms: &'static [u64],
    series: Vec<SeriesJson>,
}

#[derive(Debug, Serialize)]
struct SeriesJson {
    route: String,
    mode: &'static str,
    waits: HistogramJson,
    holds: HistogramJson,
}

#[derive(Debug, Serialize)]
struct HistogramJson {
    count: u64,
    mean_ms: f64,
    /// The upper bounds of the buckets that the quantiles are in; `null`: longer than the last bound, or no entry.
    p50_ms: Option<u64>,
    p95_ms: Option<u64>,
    p99_ms: Option<u64>,
    buckets: Vec<u64>,
}

/// `api/contended`.
#[derive(Debug, Serialize)]
pub(super) struct ContendedJson {
    /// The longest time that the counts cover.
    window_ms: u64,
    keys: Vec<ContendedKey>,
}

#[derive(Debug, Serialize)]
struct ContendedKey {
    key: LockKey,
    waits: u64,
    waited_ms: u64,
}

pub(super) fn events(locks: &LockClient) -> EventsJson {
    let events = locks.inside().journal().events();
    EventsJson {
        lost: events.lost,
        refused: events.refused,
        broken: events.broken,
        last: events.last,
        events: events.latest().into_iter().map(EventJson::from).collect(),
    }
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        let (kind, outcome, waited, cause) = match &event.cause {
            EventCause::Lost(reason) => ("lost", None, None, (*reason).to_owned()),
            EventCause::Broken(by) => ("broken", None, None, format!("broken from {by}")),
            EventCause::Refused { error, waited } => {
                let outcome = telemetry::outcome(error);
                (
                    "refused",
                    Some(outcome),
                    Some(*waited),
                    problem::text(error),
                )
            }
        };
        Self {
            number: event.number,
            at_ms: millis::of_day(event.at),
            kind,
            outcome,
            key: event.key.clone(),
            mode: event.mode,
            route: event.route.as_str().to_owned(),
            cause,
            waited_ms: waited.map(millis::of),
        }
    }
}

pub(super) fn durations(locks: &LockClient) -> DurationsJson {
    let durations = locks.inside().journal().durations();
    let series = durations.iter().map(|one| SeriesJson {
        route: one.route.as_str().to_owned(),
        mode: one.mode,
        waits: HistogramJson::from(&*one.waits),
        holds: HistogramJson::from(&*one.holds),
    });
    DurationsJson {
        bounds_ms: &telemetry::BOUNDS,
        series: series.collect(),
    }
}

impl From<&Histogram> for HistogramJson {
    fn from(histogram: &Histogram) -> Self {
        let buckets = histogram.counts();
        let count: u64 = buckets.iter().sum();
        let quantile = |per_cent: u64| {
            let place = telemetry::quantile(&buckets, per_cent)?;
            telemetry::BOUNDS.get(place).copied()
        };
        let mean = histogram.sum().as_secs_f64() * 1000.0 / count.max(1) as f64;
        Self {
            count,
            // Whole microseconds.
            mean_ms: (mean * 1000.0).round() / 1000.0,
            p50_ms: quantile(50),
            p95_ms: quantile(95),
            p99_ms: quantile(99),
            buckets: buckets.into(),
        }
    }
}

pub(super) fn contended(locks: &LockClient) -> ContendedJson {
    let contended = locks.inside().journal().contended();
    let hottest = contended.into_iter().take(HOTTEST);
    let keys = hottest.map(|one| ContendedKey {
        key: one.key,
        waits: one.waits,
        waited_ms: millis::of(one.waited),
    });
    ContendedJson {
        window_ms: 2 * millis::of(telemetry::WINDOW),
        keys: keys.collect(),
    }
}
