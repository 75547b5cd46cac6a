//! Events, durations and contended keys since the console exists, as JSON. The guide has the fields.

use serde_json::{Value, json};

use super::shared::Shared;
use super::{millis, problem};
use crate::telemetry::journal::{BOUNDS, Event, EventCause, Histogram, WINDOW, quantile};
use crate::telemetry::{self, Labels};

/// How many contended keys are shown.
const HOTTEST: usize = 20;

/// `api/events`.
pub(super) fn events(shared: &Shared) -> Value {
    let events = shared.locks.journal().events();
    let latest: Vec<_> = events.latest().into_iter().map(event).collect();
    json!({
        "lost": events.lost,
        "refused": events.refused,
        "broken": events.broken,
        "last": events.last,
        "events": latest,
    })
}

fn event(event: &Event) -> Value {
    let (kind, refusal, cause) = match &event.cause {
        EventCause::Lost(reason) => ("lost", None, (*reason).to_owned()),
        EventCause::Broken(by) => ("broken", None, format!("broken from {by}")),
        EventCause::Refused { error, waited } => {
            let refusal = (telemetry::outcome(error), millis::of(*waited));
            ("refused", Some(refusal), problem::text(error))
        }
    };
    let (outcome, waited) = refusal.unzip();
    json!({
        "number": event.number,
        "at_ms": millis::of_day(event.at),
        "kind": kind,
        "outcome": outcome,
        "key": event.key,
        "mode": event.mode,
        "route": event.route.as_str(),
        "cause": cause,
        "waited_ms": waited,
    })
}

/// `api/durations`.
pub(super) fn durations(shared: &Shared) -> Value {
    let durations = shared.locks.journal().durations();
    let series = durations.iter().map(|(Labels(route, mode), one)| {
        json!({
            "route": route.as_str(),
            "mode": mode,
            "waits": histogram(&one.waits),
            "holds": histogram(&one.holds),
        })
    });
    // One more bucket has longer durations than the last bound.
    json!({ "bounds_ms": BOUNDS, "series": series.collect::<Vec<_>>() })
}

fn histogram(histogram: &Histogram) -> Value {
    let buckets = histogram.counts();
    let count: u64 = buckets.iter().sum();
    // `None`: longer than the last bound, or no entry.
    let quantile = |per_cent: u64| BOUNDS.get(quantile(&buckets, per_cent)?);
    let mean = histogram.sum().as_secs_f64() * 1000.0 / count.max(1) as f64;
    json!({
        "count": count,
        // Whole microseconds.
        "mean_ms": (mean * 1000.0).round() / 1000.0,
        "p50_ms": quantile(50),
        "p95_ms": quantile(95),
        "p99_ms": quantile(99),
        "buckets": buckets,
    })
}

/// `api/contended`.
pub(super) fn contended(shared: &Shared) -> Value {
    let contended = shared.locks.journal().contended();
    let hottest = contended.into_iter().take(HOTTEST);
    let keys = hottest.map(|(key, waits)| {
        json!({ "key": key, "waits": waits.count, "waited_ms": millis::of(waits.sum) })
    });
    // The longest time that the counts cover.
    let window = 2 * millis::of(WINDOW);
    json!({ "window_ms": window, "keys": keys.collect::<Vec<_>>() })
}
