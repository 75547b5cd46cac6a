//! Settings that are refused, and those at the limits.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tower_distributed_lock::store::Capabilities;
use tower_distributed_lock::{
    DistributedLockLayer, IdempotencyLayer, Lease, LockClient, LockMode, MemoryStore,
};

use super::super::{Runs, is_replay, pay, payments, remembering, settle};
use crate::support::LimitedStore;

#[tokio::test]
#[should_panic(expected = "keeps no records: use one that does")]
async fn a_store_that_keeps_no_records_is_refused_when_the_layer_is_made() {
    let locks = LockClient::new(LimitedStore::new(Capabilities::new([LockMode::Reentrant])));
    let _ = IdempotencyLayer::payments(locks);
}

#[tokio::test]
async fn impossible_settings_are_refused_by_their_setters() {
    const NONE: Duration = Duration::ZERO;
    type Change = fn(IdempotencyLayer) -> IdempotencyLayer;
    let cases: [Change; 2] = [
        |layer| layer.lease(Lease::Renewed(NONE)),
        |layer| layer.lease(Lease::Fixed(NONE)),
    ];
    for change in cases {
        let (_store, _locks, layer) = remembering();
        let set = || drop(change(layer));
        let refused = std::panic::catch_unwind(AssertUnwindSafe(set)).expect_err("too short");
        let text = refused.downcast_ref::<String>().expect("a text");
        assert!(text.contains("choose at least 10 ms"), "{text}");
    }
}

/// A repeat that finds neither would run beside the first request.
#[tokio::test(start_paused = true)]
async fn a_record_is_kept_for_the_lease_at_least() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer.retention(Duration::ZERO));
    pay(&app).await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(is_replay(&pay(&app).await));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!is_replay(&pay(&app).await));
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn durations_beyond_the_range_of_the_clock_last_for_ever() {
    const FAR: Duration = Duration::MAX;
    let (_store, _locks, layer) = remembering();
    let layer = layer.lease(Lease::Fixed(FAR)).retention(FAR).wait(FAR);
    let app = payments(&Runs::default()).layer(layer);
    for replayed in [false, true] {
        assert_eq!(is_replay(&pay(&app).await), replayed);
    }
}

/// The locks of idempotency keys and their records are in the store of this layer's client alone.
#[tokio::test(start_paused = true)]
async fn records_may_have_a_store_of_their_own() {
    let (store, _locks, layer) = remembering();
    let others = MemoryStore::new();
    let lock = DistributedLockLayer::new(LockClient::new(others.clone()));
    let runs = Runs::default();
    let app = payments(&runs).layer(lock).layer(layer);
    for replayed in [false, true] {
        assert_eq!(is_replay(&pay(&app).await), replayed);
    }
    settle().await;
    assert!(others.is_empty() && !store.is_free());
    assert_eq!(runs.count(), 1);
}
