//! Settings that are refused, and those at the limits.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tower_distributed_lock::store::Capabilities;
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, IdempotencyLayer, Lease, LockClient, LockMode, MemoryStore,
};

use super::super::{Runs, answering, is_replay, pay, payments, remembering, settle};
use crate::support::LimitedStore;

#[tokio::test]
#[should_panic(expected = "keeps no records: make the client of a `MemoryStore` or a `RedisStore`")]
async fn a_store_that_keeps_no_records_is_refused_when_the_layer_is_built() {
    let locks = LockClient::new(LimitedStore::new(Capabilities::new([LockMode::Reentrant])));
    let _ = answering(|| async {}).layer(IdempotencyLayer::new(locks));
}

#[tokio::test]
#[should_panic(expected = "call `tenant` with what identifies the client")]
async fn a_layer_that_does_not_know_whose_keys_it_serves_is_refused_when_it_is_built() {
    let locks = LockClient::new(MemoryStore::new());
    let _ = answering(|| async {}).layer(IdempotencyLayer::new(locks));
}

#[tokio::test]
async fn impossible_settings_are_refused_when_the_layer_is_built() {
    const NONE: Duration = Duration::ZERO;
    type Change = fn(IdempotencyLayer) -> IdempotencyLayer;
    let cases: [(Change, &str); 5] = [
        (
            |layer| layer.confirm(Confirm::Deadline),
            "record to be stored",
        ),
        (
            |layer| layer.lease(Lease::Renewed(NONE)),
            "choose at least 10 ms",
        ),
        (|layer| layer.max_hold(NONE), "choose at least 10 ms"),
        (|layer| layer.retention(NONE), "outlive the claim"),
        (
            |layer| layer.retention(Duration::from_secs(29)),
            "outlive the claim",
        ),
    ];
    for (change, expected) in cases {
        let (_store, _locks, layer) = remembering();
        let build = || answering(|| async {}).layer(change(layer));
        let refused = std::panic::catch_unwind(AssertUnwindSafe(build)).expect_err(expected);
        let text = refused.downcast_ref::<String>().expect("a text");
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn durations_beyond_the_range_of_the_clock_last_for_ever() {
    const FAR: Duration = Duration::MAX;
    let (_store, _locks, layer) = remembering();
    let layer = layer.lease(Lease::Fixed(FAR)).retention(FAR).wait(FAR);
    let app = payments(&Runs::default()).layer(layer.max_hold(FAR));
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
