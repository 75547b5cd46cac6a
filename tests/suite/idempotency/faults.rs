//! Requests that leave no record, and the answers to them.

mod settings;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, LockStore, Record};
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient, LockKey, LockMode, MemoryStore};
use tracing::Level;

use super::{Runs, answering, is_replay, pay, payments, problem, remembering, settle, text};
use crate::layer::store::TestStore;
use crate::support::Log;

#[tokio::test(start_paused = true)]
async fn a_panic_records_nothing_and_frees_the_key_at_once() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let counted = runs.clone();
    let app = answering(move || {
        let run = counted.add();
        async move {
            assert!(run > 1, "the first run panics");
            format!("run {run}")
        }
    })
    .layer(layer);
    assert!(AssertUnwindSafe(pay(&app)).catch_unwind().await.is_err());
    settle().await;
    assert!(store.is_free());
    assert_eq!(text(pay(&app).await).await, "run 2");
    assert!(is_replay(&pay(&app).await));
}

/// The lock of the first run is stolen, and the run then takes so long.
fn robbed(store: &TestStore, runs: &Runs, pause: Duration) -> Router {
    let (thief, runs) = (store.clone(), runs.clone());
    answering(move || {
        let (thief, run) = (thief.clone(), runs.add());
        async move {
            if run == 1 {
                thief.steal().await;
                tokio::time::sleep(pause).await;
            }
            format!("run {run}")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_never_answers_with_the_handlers_response_and_records_nothing() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = robbed(&store, &runs, Duration::ZERO).layer(layer);
    let (status, problem) = problem(pay(&app).await).await;
    assert_eq!((status, &problem["type"]), (500, &"lock-lost".into()));
    assert_eq!(problem["outcome"], "unknown");
    let repeat = pay(&app).await;
    assert!(!is_replay(&repeat));
    assert_eq!(text(repeat).await, "run 2");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_lapses_ends_the_handler() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let layer = layer.lease(Lease::Fixed(Duration::from_millis(500)));
    let app = payments(&runs).layer(layer);
    assert_eq!(problem(pay(&app).await).await.0, 500);
    assert_eq!(runs.count(), 1);
}

/// A lease that is renewed is renewed for five minutes, and one that is longer is the limit itself.
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_holds_its_key_for_five_minutes_or_its_lease() {
    const MINUTE: Duration = Duration::from_secs(60);
    for (lease, minutes) in [
        (Lease::default(), 5),
        (Lease::Renewed(7 * MINUTE), 7),
        (Lease::Fixed(6 * MINUTE), 6),
    ] {
        let (_store, _locks, layer) = remembering();
        let app = answering(std::future::pending::<()>).layer(layer.lease(lease));
        let began = Instant::now();
        assert_eq!(problem(pay(&app).await).await.1["type"], "lock-lost");
        let (held, limit) = (began.elapsed(), minutes * MINUTE);
        // A deadline is a hundredth earlier than the store's.
        assert!(
            held > limit.mul_f64(0.98) && held <= limit + Duration::from_secs(2),
            "{lease:?}: {held:?}"
        );
    }
}

/// The first request is paused past its lease, and the second one has recorded. The first learns of it at its release: its client
/// gets the answer that every repeat gets.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_overtaken_answers_with_the_others_record() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = robbed(&store, &runs, Duration::from_secs(5)).layer(layer);
    // Another process has a client of its own.
    let elsewhere = answering(|| async { "the overtaker" })
        .layer(IdempotencyLayer::new(LockClient::new(store)).shared());
    let overtaker = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        pay(&elsewhere).await
    };
    let (overtaken, overtaker) = tokio::join!(pay(&app), overtaker);
    assert_eq!(text(overtaker).await, "the overtaker");
    for answer in [overtaken, pay(&app).await] {
        assert!(is_replay(&answer));
        assert_eq!(text(answer).await, "the overtaker");
    }
    assert_eq!(runs.count(), 1);
}

/// The record in its place answers another request.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_overtaken_by_another_payload_is_lost() {
    let (store, _locks, layer) = remembering();
    let app = robbed(&store, &Runs::default(), Duration::from_secs(5)).layer(layer);
    let elsewhere = answering(|| async { "the overtaker" })
        .layer(IdempotencyLayer::new(LockClient::new(store)).shared());
    let overtaker = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        super::send(&elsewhere, super::request("k", "other")).await
    };
    let (overtaken, _) = tokio::join!(pay(&app), overtaker);
    assert_eq!(problem(overtaken).await.1["type"], "lock-lost");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_not_confirmed_is_500_and_found_by_a_repeat() {
    let (store, _locks, layer) = remembering();
    let unplugged = store.clone();
    let app = answering(move || {
        unplugged.unplug(true);
        async { "done" }
    })
    .layer(layer);
    assert_eq!(problem(pay(&app).await).await.1["type"], "lock-lost");
    // The record is written in the background when the store answers again.
    store.unplug(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(is_replay(&pay(&app).await));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_asked_is_503_and_the_handler_is_not_called() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    store.unplug(true);
    let answer = pay(&app).await;
    let told = answer.headers()["retry-after"].to_str().unwrap();
    assert!(["1", "2"].contains(&told), "{told}");
    let (status, problem) = problem(answer).await;
    assert_eq!(
        (status, &problem["type"]),
        (503, &"lock-unavailable".into())
    );
    assert_eq!(runs.count(), 0);
}

/// Its claim is free again for the next one.
#[tokio::test(start_paused = true)]
async fn a_record_that_the_store_does_not_return_is_503_in_two_seconds_and_the_handler_is_not_called()
 {
    const NEVER: Duration = Duration::from_secs(3600);
    for late in [&[NEVER][..], &[Duration::ZERO, NEVER]] {
        let (store, _locks, layer) = remembering();
        let runs = Runs::default();
        let app = payments(&runs).layer(layer);
        store.delay_reads(late.iter().copied());
        let began = Instant::now();
        let (status, problem) = problem(pay(&app).await).await;
        assert_eq!(
            (status, &problem["type"]),
            (503, &"lock-unavailable".into())
        );
        assert_eq!(began.elapsed().as_secs(), 2);
        settle().await;
        assert!(store.is_free());
        assert_eq!(runs.count(), 0);
        assert_eq!(text(pay(&app).await).await, "run 1");
    }
}

/// The lock ended while the record was read under it, or the client was shut down, whose holds are kept as long as another handler runs.
#[tokio::test(start_paused = true)]
async fn a_claim_that_has_ended_before_the_handler_is_503_and_the_handler_is_not_called() {
    const LATE: Duration = Duration::from_millis(500);
    for shuts_down in [false, true] {
        let (store, locks, layer) = remembering();
        let runs = Runs::default();
        let layer = match shuts_down {
            true => layer,
            false => layer.lease(Lease::Fixed(LATE / 2)),
        };
        let app = payments(&runs).layer(layer);
        if shuts_down {
            let other = app.clone();
            tokio::spawn(async move { super::send(&other, super::request("other", "{}")).await });
            settle().await;
        }
        let others = runs.count();
        store.delay_reads([Duration::ZERO, LATE]);
        let shutdown = async {
            settle().await;
            if shuts_down {
                locks.shutdown(10 * LATE).await.unwrap();
            }
        };
        let (answer, ()) = tokio::join!(pay(&app), shutdown);
        let (status, problem) = problem(answer).await;
        assert_eq!(
            (status, &problem["type"]),
            (503, &"lock-unavailable".into())
        );
        assert_eq!(runs.count(), others);
        settle().await;
        assert_eq!(locks.keys_in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_reads_of_a_record_count_as_waiting() {
    const LATE: Duration = Duration::from_millis(1900);
    for (wait, answered) in [(3, 3), (0, 1)] {
        let (store, locks, layer) = remembering();
        let layer = layer.wait(Duration::from_secs(wait));
        let key = "idempotency:POST:/payments::idempotency-key:k";
        let held = locks.lock(key).await.unwrap();
        let app = payments(&Runs::default()).layer(layer);
        store.delay_reads([LATE]);
        let began = Instant::now();
        assert_eq!(pay(&app).await.status(), 409);
        assert_eq!(began.elapsed().as_secs(), answered);
        drop(held);
    }
    // The attempt is slow too, after reads that have spent the wait.
    let (store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer.wait(Duration::ZERO));
    store.delay_reads([LATE]);
    let began = Instant::now();
    let silence = async {
        tokio::time::sleep(LATE / 2).await;
        store.silence(true);
    };
    let (answer, ()) = tokio::join!(pay(&app), silence);
    assert_eq!(answer.status(), 503);
    assert_eq!(began.elapsed().as_secs(), 2);

    let (store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer);
    store.delay_reads([LATE, LATE]);
    let began = Instant::now();
    assert_eq!(
        pay(&app).await.status(),
        503,
        "it is claimed, and not read in time"
    );
    assert_eq!(began.elapsed().as_secs(), 3);
}

/// The first request ends in the last moment of the wait, and the store is as fast as any.
#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_granted_in_the_last_moment_is_answered_by_the_record() {
    let (store, _locks, layer) = remembering();
    let layer = layer.wait(Duration::from_secs(3));
    let app = answering(async || {
        tokio::time::sleep(Duration::from_millis(2999)).await;
        "paid"
    })
    .layer(layer);
    store.delay_reads([0, 0, 0, 10].map(Duration::from_millis));
    let (first, repeat) = tokio::join!(pay(&app), pay(&app));
    assert_eq!(
        (first.status().as_u16(), repeat.status().as_u16()),
        (200, 200)
    );
    assert!(is_replay(&first) != is_replay(&repeat));
}

/// A memory store with a record under the key `k`, as another process may have left it.
async fn with_record(value: Bytes) -> LockClient {
    let store = MemoryStore::new();
    let locks = LockClient::new(store.clone());
    let key = LockKey::new("idempotency:POST:/payments::idempotency-key:k");
    let hold = Hold {
        key,
        mode: LockMode::Reentrant,
        id: HoldId::new(locks.id(), u64::MAX),
    };
    let attempt = Attempt::new(hold.clone(), Duration::from_secs(1));
    store.acquire(&attempt).await.unwrap();
    let retention = Duration::from_secs(60);
    let record = Record::new(value, retention);
    store.release(&hold, Some(&record)).await.unwrap();
    locks
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_program_is_500_and_the_handler_is_not_called() {
    let locks = with_record("{\"status\": 200}".into()).await;
    let runs = Runs::default();
    let app = payments(&runs).layer(IdempotencyLayer::new(locks).shared());
    let (log, _guard) = Log::at(Level::ERROR);
    for _ in 0..10 {
        let (status, problem) = problem(pay(&app).await).await;
        assert_eq!(
            (status, &problem["type"]),
            (500, &"record-unreadable".into())
        );
    }
    assert_eq!(runs.count(), 0);
    assert_eq!(log.text().lines().count(), 1, "clients decide how many");
}

/// Processes with several versions of this crate may share a store: a new layout, or another fingerprint, needs a new version.
#[tokio::test(start_paused = true)]
async fn a_record_in_the_layout_of_version_3_is_replayed() {
    let mut fingerprint = Sha256::new();
    let no_lines = 0_u64.to_be_bytes();
    for method_host_path_or_query in ["POST", "", "/payments", ""] {
        fingerprint.update((method_host_path_or_query.len() as u64).to_be_bytes());
        fingerprint.update(method_host_path_or_query);
    }
    // No content encoding, no form, no content type, and the body with its length.
    let fingerprint = fingerprint.chain_update(no_lines).chain_update([0]);
    let fingerprint = fingerprint.chain_update(no_lines);
    let fingerprint = fingerprint
        .chain_update(2_u64.to_be_bytes())
        .chain_update("{}");
    let fingerprint = fingerprint.finalize();
    let head: &[u8] = b"\0\0\0\0\0\0\0\x05\0\xc9x:y\n\n";
    let record = [b"tdl-idem\x03", &fingerprint[..], head, b"run 0"].concat();
    let locks = with_record(record.into()).await;
    let runs = Runs::default();
    let app = payments(&runs).layer(IdempotencyLayer::new(locks).shared());
    let replay = pay(&app).await;
    assert_eq!(replay.status(), 201);
    assert!(is_replay(&replay));
    assert_eq!(replay.headers()["x"], "y");
    assert_eq!(text(replay).await, "run 0");
    let other = super::send(&app, super::request("k", "{ }")).await;
    assert_eq!(other.status(), 422);
    assert_eq!(runs.count(), 0);
}
