//! A webhook is processed once, however often and to whichever server it is sent.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine};
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::json;
use sha2::Sha256;

use super::{Answer, SOON, SOONER, answer, locks_in, pair, until_seen};
use crate::support::{DemoServer, RedisServer, eventually};

pub(super) const SECRET: &str = "correct horse battery staple";
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

pub(super) fn sign(key: &str, id: &str, timestamp: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("any length will do");
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

/// A webhook about an order, signed now.
pub(super) fn webhook(server: &str, id: &str, order: &str, hold_ms: u64) -> RequestBuilder {
    let body = json!({ "order": order }).to_string();
    let signature = sign(SECRET, id, now(), &body);
    Client::new()
        .post(format!("{server}/webhooks/orders?hold_ms={hold_ms}"))
        .header("webhook-id", id)
        .header("webhook-timestamp", now())
        .header("webhook-signature", signature)
        .body(body)
}

pub(super) async fn deliver(server: &str, id: &str, order: &str, hold_ms: u64) -> Answer {
    answer(webhook(server, id, order, hold_ms)).await
}

#[tokio::test]
async fn concurrent_duplicates_over_two_servers_run_once() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[("WEBHOOK_SECRET", SECRET)]).await;
    let servers = [a.url(), b.url()];
    let deliveries = (0..12).map(|i| deliver(servers[i % 2], "msg_1", "7", 300));
    let answers = join_all(deliveries).await;
    for answer in &answers {
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.body, json!({"order": "7", "processed": 1}));
    }
    let ran = answers.iter().filter(|answer| !answer.replayed).count();
    assert_eq!(ran, 1);
    eventually("every lock is gone", SOON, async || {
        locks_in(&redis).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn different_webhooks_about_one_order_all_count_and_do_not_overlap() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[("WEBHOOK_SECRET", SECRET)]).await;
    let servers = [a.url(), b.url()];
    let ids: Vec<_> = (0..8).map(|i| format!("msg_{i}")).collect();
    let deliveries = (0..16).map(|i| deliver(servers[i % 2], &ids[i / 2], "7", 20));
    let mut counts: Vec<_> = join_all(deliveries)
        .await
        .iter()
        .map(|answer| answer.body["processed"].as_u64().expect("a count"))
        .collect();
    counts.sort_unstable();
    counts.dedup();
    assert_eq!(counts, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_handler_killed_in_the_middle_runs_again_within_the_lease() {
    let redis = RedisServer::start().await;
    let settings = [("WEBHOOK_SECRET", SECRET), ("LOCK_LEASE_MS", "1000")];
    let [mut a, b] = pair(&redis, &settings).await;
    let cut = webhook(a.url(), "msg_1", "7", 60_000);
    tokio::spawn(async move {
        let _ = cut.send().await;
    });
    eventually(
        "it has claimed the webhook and the order",
        SOON,
        async || locks_in(&redis).await.len() >= 2,
    )
    .await;
    a.process.kill9();
    let begun = Instant::now();
    let retry = deliver(b.url(), "msg_1", "7", 0).await;
    assert_eq!(retry.status, StatusCode::OK, "{retry:?}");
    assert!(!retry.replayed);
    assert_eq!(
        retry.body["processed"], 1,
        "the killed one had not counted yet"
    );
    assert!(begun.elapsed() < SOONER);
    assert!(deliver(b.url(), "msg_1", "7", 0).await.replayed);
}

#[tokio::test]
async fn a_sender_that_hangs_up_and_comes_back_is_served_once() {
    let server = DemoServer::start(&[("WEBHOOK_SECRET", SECRET)]).await;
    let short = webhook(server.url(), "msg_1", "7", 300).timeout(Duration::from_millis(100));
    assert!(short.send().await.is_err());
    let retry = deliver(server.url(), "msg_1", "7", 300).await;
    assert_eq!(retry.body["processed"], 1, "{retry:?}");
}

#[tokio::test]
async fn a_webhook_runs_to_its_end_when_its_sender_hangs_up() {
    let redis = RedisServer::start().await;
    let url = redis.url();
    let server = DemoServer::start(&[("REDIS_URL", &url), ("WEBHOOK_SECRET", SECRET)]).await;
    let sending = tokio::spawn(webhook(server.url(), "msg_1", "7", 1500).send());
    eventually("the handler runs", SOON, async || {
        locks_in(&redis).await.len() >= 2
    })
    .await;
    sending.abort();
    let retry = deliver(server.url(), "msg_1", "7", 1500).await;
    assert!(retry.replayed, "{retry:?}");
    assert_eq!(retry.body["processed"], 1);
}

#[tokio::test]
async fn the_record_outlives_the_servers_and_a_restart_of_redis() {
    let mut redis = RedisServer::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start()
        .await;
    let url = redis.url();
    let settings = [("REDIS_URL", url.as_str()), ("WEBHOOK_SECRET", SECRET)];
    {
        let mut server = DemoServer::start(&settings).await;
        assert!(!deliver(server.url(), "msg_1", "7", 0).await.replayed);
        server.process.terminate();
        assert!(server.process.end().await.success());
    }
    redis.kill9();
    redis.restart().await;
    let server = DemoServer::start(&settings).await;
    let repeat = deliver(server.url(), "msg_1", "7", 0).await;
    assert!(repeat.replayed, "{repeat:?}");
    assert_eq!(repeat.body, json!({"order": "7", "processed": 1}));
}

#[tokio::test]
async fn in_flight_past_the_wait_is_409_and_another_payload_is_422() {
    let redis = RedisServer::start().await;
    let settings = [("WEBHOOK_SECRET", SECRET), ("LOCK_WAIT_MS", "200")];
    let [a, b] = pair(&redis, &settings).await;
    let impatient = async {
        eventually("it has claimed the webhook", SOON, async || {
            !locks_in(&redis).await.is_empty()
        })
        .await;
        deliver(b.url(), "msg_1", "7", 0).await
    };
    let (first, second) = tokio::join!(deliver(a.url(), "msg_1", "7", 1500), impatient);
    assert_eq!(first.status, StatusCode::OK);
    assert_eq!(second.status, StatusCode::CONFLICT, "{second:?}");
    assert_eq!(second.body["type"], "request-in-progress");
    assert!(second.retry_after.is_some_and(|seconds| seconds >= 1));
    let other = deliver(b.url(), "msg_1", "8", 0).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{other:?}");
    assert_eq!(other.body["type"], "key-reused");
}

#[tokio::test]
async fn a_server_paused_past_its_lease_neither_answers_nor_records() {
    let redis = RedisServer::start().await;
    let settings = [("WEBHOOK_SECRET", SECRET), ("LOCK_LEASE_MS", "500")];
    let [mut a, b] = pair(&redis, &settings).await;
    let url = a.url().to_owned();
    let monitor = redis.monitor().await;
    let overtaking = async {
        until_seen(&monitor, "\"GET\" \"orders:7\"").await;
        a.process.pause();
        let overtaker = deliver(b.url(), "msg_1", "7", 0).await;
        a.process.resume();
        overtaker
    };
    let (paused, overtaker) = tokio::join!(deliver(&url, "msg_1", "7", 1000), overtaking);
    assert_eq!(overtaker.status, StatusCode::OK, "{overtaker:?}");
    assert!(!overtaker.replayed);
    assert_eq!(
        paused.status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "{paused:?}"
    );
    assert_eq!(paused.body["type"], "lock-lost");
    let repeat = deliver(&url, "msg_1", "7", 0).await;
    assert!(repeat.replayed);
    assert_eq!(repeat.body, overtaker.body);
}

#[tokio::test]
async fn a_stolen_claim_is_500_and_not_recorded() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[("WEBHOOK_SECRET", SECRET)]).await;
    let theft = async {
        eventually(
            "it has claimed the webhook and the order",
            SOON,
            async || locks_in(&redis).await.len() >= 2,
        )
        .await;
        let mut connection = redis.connection().await;
        let () = redis::cmd("FLUSHALL")
            .query_async(&mut connection)
            .await
            .expect("flushed");
    };
    let (robbed, ()) = tokio::join!(deliver(a.url(), "msg_1", "7", 500), theft);
    assert_eq!(
        robbed.status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "{robbed:?}"
    );
    assert_eq!(robbed.body["type"], "lock-lost");
    assert!(!deliver(b.url(), "msg_1", "7", 0).await.replayed);
}
