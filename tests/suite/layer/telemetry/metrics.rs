//! The metrics are those of the table in the docs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics::Unit;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use futures_util::FutureExt;
use tower_distributed_lock::client::LockEventKind;
use tower_distributed_lock::{LockClient, LockError, RedisStore};

use super::super::{locking, orders, put, request, send};
use super::{SECRET, everything};
use crate::support::{RedisServer, eventually};

/// Name, type, unit and labels of a metric.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    name: String,
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
}

/// The rows of the table in the docs. Only Redis has those about the store's connections.
fn documented(of_redis: bool) -> BTreeSet<Row> {
    let docs = include_str!("../../../../src/telemetry.rs");
    let rows = docs
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `distributed_lock_"));
    rows.map(|row| {
        let cells: Vec<_> = row
            .split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect();
        Row {
            name: format!("distributed_lock_{}", cells[0]),
            kind: cells[1].clone(),
            unit: cells[2].clone(),
            labels: cells[3].split(", ").map(String::from).collect(),
        }
    })
    .filter(|row| !ELSEWHERE.contains(&&*row.name))
    .filter(|row| row.name.starts_with(OF_REDIS) == of_redis)
    .collect()
}

const OF_REDIS: &str = "distributed_lock_store_";

/// Metrics of other servers than these tests have: see `failovers`, and `faults::clock`.
const ELSEWHERE: [&str; 2] = [
    "distributed_lock_failovers_total",
    "distributed_lock_clock_offset_seconds",
];

/// All measurements, by name and labels.
type Measured = BTreeMap<(String, Vec<String>), (Row, DebugValue)>;

async fn measured(work: impl Future) -> Measured {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    {
        let _local = metrics::set_default_local_recorder(&recorder);
        work.await;
    }
    let series = snapshots.snapshot().into_vec().into_iter();
    series
        .map(|(key, unit, description, value)| {
            assert!(description.is_some(), "{key:?} has no description");
            let (kind, key) = key.into_parts();
            let labels = || key.labels();
            let row = Row {
                name: key.name().to_owned(),
                kind: match kind {
                    MetricKind::Counter => "counter",
                    MetricKind::Gauge => "gauge",
                    MetricKind::Histogram => "histogram",
                }
                .to_owned(),
                unit: unit.as_ref().map_or("", Unit::as_str).to_owned(),
                labels: labels().map(|label| label.key().to_owned()).collect(),
            };
            let values = labels().map(|label| label.value().to_owned()).collect();
            ((row.name.clone(), values), (row, value))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_measured_is_what_the_docs_say() {
    let measured = measured(everything()).await;
    let emitted: BTreeSet<_> = measured.into_values().map(|(row, _)| row).collect();
    assert_eq!(emitted, documented(false));
}

/// Work, then a server that is silent for a while, then a server that is down.
async fn a_life_with_redis() {
    let mut server = RedisServer::start().await;
    let store = RedisStore::builder(server.url()).response_timeout(Duration::from_millis(500));
    let locks = LockClient::new(store.connect().await.unwrap());
    locks.lock("k").await.unwrap().release().await.unwrap();
    server.pause();
    let silent = locks.lock("k").wait(Duration::from_secs(1)).await;
    assert!(
        matches!(silent, Err(LockError::Unavailable(_))),
        "{silent:?}"
    );
    server.kill9();
    eventually(
        "it is known to be gone",
        Duration::from_secs(20),
        async || {
            let gone = locks.lock("k").wait(Duration::ZERO).await;
            let told = gone.err().map(|error| format!("{error:?}"))?;
            told.contains("Unreachable").then_some(())
        },
    )
    .await;
    drop(locks);
    // The connections end on the store's thread.
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[tokio::test]
async fn what_is_measured_of_redis_is_what_the_docs_say() {
    let measured = measured(a_life_with_redis()).await;
    let of_redis = measured.into_iter();
    let of_redis = of_redis.filter(|((name, _), _)| name.starts_with(OF_REDIS));
    let mut emitted = BTreeSet::new();
    for ((name, carries), (row, value)) in of_redis {
        assert!(["commands", "renewals", "wake-ups"].contains(&carries[0].as_str()));
        let counted = match value {
            DebugValue::Counter(count) => count > 0,
            // No connection is up any more.
            DebugValue::Gauge(now) => now.into_inner() == 0.0,
            DebugValue::Histogram(values) => !values.is_empty(),
        };
        assert!(counted, "{name}");
        emitted.insert(row);
    }
    assert_eq!(emitted, documented(true));
}

#[tokio::test(start_paused = true)]
async fn labels_are_routes_and_modes_and_never_what_a_client_sends() {
    let known = [
        "/orders/{id}",
        "none",
        "read",
        "write",
        "reentrant",
        "mixed",
        "renewed",
        "lost",
        "gone",
        "not_renewed",
        "failed",
        "executed",
        "recorded",
        "store",
        "lease",
        "nightly",
    ];
    let measured = measured(everything()).await.into_keys();
    // Its labels are the kinds of warnings.
    let measured = measured.filter(|(name, _)| name != "distributed_lock_audit_warnings");
    for (name, labels) in measured {
        for label in labels {
            assert!(known.contains(&label.as_str()), "{name} {label}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_outcome_is_counted_once() {
    let measured = measured(everything()).await;
    let count = |name: &str, labels: &[&str]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let name = format!("distributed_lock_{name}");
        match &measured.get(&(name, labels)).expect("it was measured").1 {
            DebugValue::Counter(count) => *count as f64,
            DebugValue::Gauge(level) => level.0,
            DebugValue::Histogram(values) => values.len() as f64,
        }
    };
    let orders = ["/orders/{id}", "write"];
    let requests = 8.0;
    assert_eq!(count("wait_duration_seconds", &orders), requests);
    assert_eq!(count("contended_total", &orders), 1.0);
    assert_eq!(count("handovers_total", &["none", "reentrant"]), 1.0);
    assert_eq!(count("audit_warnings", &["evicts"]), 0.0);
    assert_eq!(count("overloaded_total", &orders), 1.0);
    assert_eq!(count("unavailable_total", &orders), 1.0);
    assert_eq!(count("hold_duration_seconds", &orders), requests - 4.0);
    let lost = |route, mode, reason| count("lost_total", &[route, mode, reason]);
    assert_eq!(lost("/orders/{id}", "write", "gone"), 1.0);
    assert_eq!(lost("none", "reentrant", "gone"), 1.0);
    assert_eq!(lost("none", "read", "not_renewed"), 1.0);
    assert_eq!(count("renewals_total", &["none", "reentrant", "lost"]), 1.0);
    // Tried repeatedly with growing pauses, from the first attempt, at most a third of the lease away, to the end of
    // the lease.
    let failed = count("renewals_total", &["none", "read", "failed"]);
    assert!((5.0..=30.0).contains(&failed), "{failed}");
    let renewed = count("renewals_total", &["/orders/{id}", "write", "renewed"]);
    assert_eq!(count("renewal_lag_seconds", &orders), renewed);
    assert_eq!(count("hold_duration_seconds", &["nightly", "mixed"]), 1.0);
    let confirmed = count("confirmed_total", &["/orders/{id}", "write", "store"]);
    assert_eq!(confirmed, 2.0);
    for (route, mode) in [
        ("/orders/{id}", "write"),
        ("none", "reentrant"),
        ("none", "read"),
        ("nightly", "mixed"),
    ] {
        assert_eq!(count("waiters", &[route, mode]), 0.0, "{mode}");
    }
}

/// An alarm counts them, so none may be refused in silence: the first finds out that the store is down, and the others know it.
#[tokio::test(start_paused = true)]
async fn each_refusal_in_an_outage_is_counted_and_is_an_event() {
    let measured = measured(async {
        let (store, locks, layer) = locking();
        let mut events = locks.events();
        let app = orders().layer(layer);
        store.unplug(true);
        for _ in 0..3 {
            assert_eq!(put(&app, SECRET).await.status(), 503);
            let mut upload = request("PUT", SECRET);
            *upload.body_mut() = "body".into();
            assert_eq!(send(&app, upload).await.status(), 503);
        }
        for _ in 0..6 {
            let event = events.next().now_or_never().flatten();
            let kind = event.expect("one for each").kind;
            let LockEventKind::Refused { error, .. } = &kind else {
                panic!("{kind:?}");
            };
            assert!(matches!(error, LockError::Unavailable(_)), "{error}");
        }
        assert!(events.next().now_or_never().is_none());
    })
    .await;
    let labels = ["/orders/{id}", "write"].map(String::from).to_vec();
    let refused = &measured[&("distributed_lock_unavailable_total".to_owned(), labels)].1;
    assert_eq!(refused, &DebugValue::Counter(6));
}

#[tokio::test(start_paused = true)]
async fn durations_are_those_of_the_clock() {
    let measured = measured(everything()).await;
    let longest = |name: &str| {
        let labels = vec!["/orders/{id}".to_owned(), "write".to_owned()];
        match &measured[&(format!("distributed_lock_{name}"), labels)].1 {
            DebugValue::Histogram(values) => values.iter().max().expect("some").0,
            other => panic!("{other:?}"),
        }
    };
    assert!((2.0..2.01).contains(&longest("wait_duration_seconds")));
    assert!((5.0..5.01).contains(&longest("hold_duration_seconds")));
    // Renewals are sent a little early for larger batches, and answered at once here.
    assert!(longest("renewal_lag_seconds") < 0.01);
}
