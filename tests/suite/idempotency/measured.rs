//! The metrics of idempotent requests.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use http::StatusCode;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::{Runs, answering, pay, payments, remembering, request, send};

/// The counts of requests and responses during `work`, and the number of measured holds.
async fn counted(work: impl Future) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    {
        let _local = metrics::set_default_local_recorder(&recorder);
        work.await;
        super::settle().await;
    }
    let mut counts = BTreeMap::new();
    for (key, _, _, value) in snapshots.snapshot().into_vec() {
        let key = key.key();
        let label = key.labels().find(|label| label.key() == "outcome");
        let outcome = label.map(|label| label.value());
        let (name, count) = match (key.name(), value) {
            ("distributed_lock_idempotent_requests_total", DebugValue::Counter(count)) => {
                (outcome.unwrap(), count)
            }
            ("distributed_lock_idempotent_responses_total", DebugValue::Counter(count)) => {
                (outcome.unwrap(), count)
            }
            ("distributed_lock_unavailable_total", DebugValue::Counter(count)) => {
                ("unavailable", count)
            }
            ("distributed_lock_hold_duration_seconds", DebugValue::Histogram(values)) => {
                ("held", values.len() as u64)
            }
            _ => continue,
        };
        *counts.entry(name.to_owned()).or_default() += count;
    }
    counts
}

fn expected<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

#[tokio::test(start_paused = true)]
async fn replays_and_refusals_are_counted_and_are_no_holds() {
    let (_store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer);
    let work = async {
        pay(&app).await;
        pay(&app).await;
        pay(&app).await;
        assert_eq!(send(&app, request("k", "other")).await.status(), 422);
    };
    let counts = [
        ("executed", 1),
        ("held", 1),
        ("recorded", 1),
        ("refused", 1),
        ("replayed", 2),
    ];
    assert_eq!(counted(work).await, expected(counts));
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_has_waited_for_the_lock_is_no_hold() {
    let (_store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer);
    let work = async { tokio::join!(pay(&app), pay(&app)) };
    let counts = [
        ("executed", 1),
        ("held", 1),
        ("recorded", 1),
        ("replayed", 1),
    ];
    assert_eq!(counted(work).await, expected(counts));
}

/// The store may fail at each question: for the record, for the lock, or for the record again.
#[tokio::test(start_paused = true)]
async fn a_refusal_for_want_of_the_store_is_counted_once() {
    let (store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer);
    store.unplug(true);
    let outage = async {
        for _ in 0..3 {
            assert_eq!(pay(&app).await.status(), 503);
            let mut empty = request("k", "");
            *empty.body_mut() = Body::empty();
            assert_eq!(send(&app, empty).await.status(), 503);
        }
    };
    let counts = [("refused", 6), ("unavailable", 6)];
    assert_eq!(counted(outage).await, expected(counts));
    store.unplug(false);
    store.delay_reads([0, 5].map(Duration::from_secs));
    let counts = counted(pay(&app)).await;
    assert_eq!((counts["refused"], counts["unavailable"]), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_recorded_is_counted_and_so_is_what_may_be() {
    let (store, _locks, layer) = remembering();
    let app = answering(async || StatusCode::BAD_GATEWAY).layer(layer.clone());
    let counts = [("executed", 1), ("held", 1), ("not_recorded", 1)];
    assert_eq!(counted(pay(&app)).await, expected(counts));

    let unplugged = store.clone();
    let app = answering(move || {
        unplugged.unplug(true);
        async {}
    });
    let app = app.layer(layer);
    let counts = [("executed", 1), ("held", 1), ("unknown", 1)];
    assert_eq!(counted(pay(&app)).await, expected(counts));
}
