//! Records that a process remembers by itself.

use std::time::Duration;

use tower_distributed_lock::{IdempotencyLayer, LockClient};

use super::{Runs, answering, is_replay, pay, payments, remembering, request, send};

#[tokio::test(start_paused = true)]
async fn a_replay_from_memory_asks_the_store_nothing() {
    for (local, answered) in [(0, false), (1, true)] {
        let (store, _locks, layer) = remembering();
        let app = payments(&Runs::default()).layer(layer.local_records(local));
        pay(&app).await;
        store.unplug(true);
        let repeat = pay(&app).await;
        assert_eq!(is_replay(&repeat), answered, "{local}");
        let other = send(&app, request("k", "other")).await;
        assert_eq!(other.status(), if answered { 422 } else { 503 });
    }
}

/// What another process has recorded is read once.
#[tokio::test(start_paused = true)]
async fn a_record_from_the_store_is_remembered_for_a_minute() {
    let (store, _locks, layer) = remembering();
    let elsewhere = IdempotencyLayer::new(LockClient::new(store.clone())).shared();
    pay(&answering(async || "paid").layer(elsewhere)).await;
    let app = payments(&Runs::default()).layer(layer.local_records(8));
    assert!(is_replay(&pay(&app).await));
    store.unplug(true);
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(is_replay(&pay(&app).await));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(pay(&app).await.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_remembered_record_ends_with_its_retention() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let layer = layer.retention(Duration::from_secs(60)).local_records(8);
    let app = payments(&runs).layer(layer);
    pay(&app).await;
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert!(is_replay(&pay(&app).await));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!is_replay(&pay(&app).await));
    assert_eq!(runs.count(), 2);
    assert!(
        is_replay(&pay(&app).await),
        "the new record takes its place"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_records_are_remembered_than_the_program_allows() {
    let (store, _locks, layer) = remembering();
    let app = answering(async || "paid").layer(layer.local_records(3));
    for key in ["1", "2", "3", "4"] {
        send(&app, request(key, "{}")).await;
    }
    store.unplug(true);
    for (key, status) in [("1", 503), ("2", 200), ("3", 200), ("4", 200)] {
        assert_eq!(
            send(&app, request(key, "{}")).await.status(),
            status,
            "{key}"
        );
    }
}

/// Otherwise the record that every repeat needs is the first that is forgotten.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_read_anew_is_the_newest_again() {
    let (store, _locks, layer) = remembering();
    let elsewhere = IdempotencyLayer::new(LockClient::new(store.clone())).shared();
    let elsewhere = answering(async || "paid").layer(elsewhere);
    let app = answering(async || "paid").layer(layer.local_records(2));
    for key in ["1", "2"] {
        send(&elsewhere, request(key, "{}")).await;
        send(&app, request(key, "{}")).await;
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    for key in ["1", "3"] {
        send(&app, request(key, "{}")).await;
    }
    store.unplug(true);
    for (key, status) in [("1", 200), ("2", 503), ("3", 200)] {
        let repeat = send(&app, request(key, "{}")).await;
        assert_eq!(repeat.status(), status, "{key}");
    }
}
