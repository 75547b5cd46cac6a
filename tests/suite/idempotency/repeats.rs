//! Repeats of a request: afterwards, meanwhile, and with a different content.

use std::future::pending;
use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::{IdempotencyLayer, Lease, LockClient, Rejection, RejectionKind};

use super::{Runs, is_replay, pay, payments, problem, remembering, request, send, settle, text};

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_the_first_answer_and_runs_nothing() {
    let (_store, locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    let first = pay(&app).await;
    assert_eq!(first.status(), 201);
    assert!(!is_replay(&first));
    assert_eq!(text(first).await, "run 1");
    for _ in 0..3 {
        let repeat = pay(&app).await;
        assert_eq!(repeat.status(), 201);
        assert!(is_replay(&repeat));
        assert_eq!(repeat.headers()["content-length"], "5");
        assert_eq!(text(repeat).await, "run 1");
    }
    assert_eq!(runs.count(), 1);
    settle().await;
    assert_eq!(locks.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_concurrent_duplicates_one_runs_and_all_get_its_answer() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    let answers = join_all((0..20).map(|_| pay(&app))).await;
    let replays = answers.iter().filter(|answer| is_replay(answer)).count();
    assert_eq!(replays, 19);
    for answer in answers {
        assert_eq!(answer.status(), 201);
        assert_eq!(text(answer).await, "run 1");
    }
    assert_eq!(runs.count(), 1);
}

/// They take the key one after the other, and each look-up takes its time.
#[tokio::test(start_paused = true)]
async fn a_repeat_whose_turn_does_not_come_in_time_is_answered_by_the_record_that_is_there() {
    let (store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer.wait(Duration::from_millis(1500)));
    store.delay_reads([Duration::from_millis(50); 100]);
    let answers = join_all((0..30).map(|_| pay(&app))).await;
    let replays = answers.iter().filter(|answer| is_replay(answer)).count();
    assert_eq!(replays, 29);
}

/// More wait in this process than may, and the first request was served in another one.
#[tokio::test(start_paused = true)]
async fn a_repeat_that_finds_the_queue_full_is_answered_by_the_record_that_is_there() {
    for body in ["{}", ""] {
        let (store, locks, layer) = remembering();
        let runs = Runs::default();
        let elsewhere = IdempotencyLayer::new(LockClient::new(store)).shared();
        let elsewhere = payments(&runs).layer(elsewhere);
        let app = payments(&runs).layer(layer);
        let refused = async {
            settle().await;
            for _ in 0..70 {
                let key = "idempotency:POST:/payments::idempotency-key:k";
                let waiting = locks.lock(key).acquire();
                tokio::spawn(async {
                    let _guard = waiting.await;
                    pending::<()>().await;
                });
            }
            settle().await;
            send(&app, request("k", body)).await
        };
        let (first, refused) = tokio::join!(send(&elsewhere, request("k", body)), refused);
        assert_eq!(first.status(), 201);
        assert_eq!(problem(refused).await.1["type"], "lock-overloaded");
        let repeat = send(&app, request("k", body)).await;
        assert!(is_replay(&repeat), "{}", repeat.status());
        assert_eq!(runs.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn another_key_is_another_request() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    let (a, b) = tokio::join!(
        send(&app, request("a", "{}")),
        send(&app, request("b", "{}"))
    );
    assert!(!is_replay(&a) && !is_replay(&b));
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_payload_under_the_same_key_is_422_also_while_the_first_is_under_way() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    let (first, other) = tokio::join!(
        send(&app, request("k", "{\"amount\": 1}")),
        send(&app, request("k", "{\"amount\": 2}")),
    );
    assert_eq!(first.status(), 201);
    let rejection = other.extensions().get::<Rejection>().cloned();
    assert_eq!(
        rejection.map(|rejection| rejection.kind()),
        Some(RejectionKind::KeyReused)
    );
    let (status, problem) = problem(other).await;
    assert_eq!((status, &problem["type"]), (422, &"key-reused".into()));
    assert_eq!(runs.count(), 1);
    let repeat = send(&app, request("k", "{\"amount\": 1}")).await;
    assert!(is_replay(&repeat), "the record is not disturbed");
}

#[tokio::test(start_paused = true)]
async fn in_flight_past_the_wait_is_409_with_retry_after() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    // The first request of the layer runs without a measurement, after which clients return within two seconds. It takes a second.
    for (wait, latest) in [(Duration::ZERO, 2), (Duration::from_millis(500), 3)] {
        let app = payments(&runs).layer(layer.clone().wait(wait));
        let key = format!("{wait:?}");
        let repeat = async {
            settle().await;
            send(&app, request(&key, "{}")).await
        };
        let (first, repeat) = tokio::join!(send(&app, request(&key, "{}")), repeat);
        assert_eq!(first.status(), 201);
        let retry_after = repeat.headers()["retry-after"].to_str().unwrap().to_owned();
        let retry_after: u64 = retry_after.parse().unwrap();
        assert!((1..=latest).contains(&retry_after), "{retry_after}");
        let (status, problem) = problem(repeat).await;
        assert_eq!(
            (status, &problem["type"]),
            (409, &"request-in-progress".into())
        );
    }
    assert_eq!(runs.count(), 2);
}

/// A handler takes a second, and its lease is thirty times as long.
#[tokio::test(start_paused = true)]
async fn a_409_says_to_come_back_when_the_first_request_has_probably_ended() {
    let (_store, _locks, layer) = remembering();
    let app = payments(&Runs::default()).layer(layer.wait(Duration::ZERO));
    send(&app, request("before", "{}")).await;
    let repeat = async {
        settle().await;
        pay(&app).await
    };
    let (_, repeat) = tokio::join!(pay(&app), repeat);
    let retry_after = repeat.headers()["retry-after"].to_str().unwrap();
    assert!(
        (1..=4).contains(&retry_after.parse::<u64>().unwrap()),
        "{retry_after}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_claim_outlives_many_leases_and_the_record_outlives_the_claim() {
    let (store, _locks, layer) = remembering();
    let runs = Runs::default();
    let layer = layer
        .lease(Lease::Renewed(Duration::from_millis(90)))
        .retention(Duration::from_secs(60));
    let app = payments(&runs).layer(layer);
    let (first, meanwhile) = tokio::join!(pay(&app), pay(&app));
    assert!(!is_replay(&first) && is_replay(&meanwhile));
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert!(is_replay(&pay(&app).await));
    tokio::time::sleep(Duration::from_secs(6)).await;
    settle().await;
    assert!(store.is_free(), "nothing is left after the retention");
    assert!(!is_replay(&pay(&app).await));
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_hangs_up_cuts_no_work_in_half() {
    let (_store, _locks, layer) = remembering();
    let runs = Runs::default();
    let app = payments(&runs).layer(layer);
    let gone = tokio::time::timeout(Duration::from_millis(500), pay(&app)).await;
    assert!(gone.is_err());
    let repeat = pay(&app).await;
    assert_eq!(repeat.status(), 201);
    assert!(is_replay(&repeat));
    assert_eq!(text(repeat).await, "run 1");
}
