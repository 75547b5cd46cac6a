//! Requests are serialised per document.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{NO_TIME, SOON, answer, get, locks_in, pair, put};
use crate::support::{DemoServer, RedisServer, eventually};

const HOLD: Duration = Duration::from_secs(1);

#[tokio::test]
async fn no_update_is_lost_on_memory() {
    let server = DemoServer::start(&[]).await;
    no_update_is_lost(&[server.url()]).await;
}

#[tokio::test]
async fn no_update_is_lost_between_servers_on_redis() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[("LOCK_WAIT_MS", "60000")]).await;
    no_update_is_lost(&[a.url(), b.url()]).await;
    eventually("nothing is left", SOON, async || {
        let mut left = locks_in(&redis).await;
        // The tombstone of a withdrawn attempt, and what announces it, expire.
        left.retain(|key| {
            !["tower_lock_void:", "tower_lock_busy:"]
                .iter()
                .any(|kept| key.starts_with(kept))
        });
        left.extend(redis.pubsub_channels().await.into_keys());
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

async fn no_update_is_lost(servers: &[&str]) {
    const WRITES: usize = 24;
    let writes = (0..WRITES).map(|i| {
        let server = servers[i % servers.len()];
        put(server, "1", Duration::from_millis(10), "x")
    });
    let answers = join_all(writes).await;
    let said = |text| answers.iter().any(|answer| answer.body["error"] == text);
    // The write of a handler that had no answer may arrive while the next one holds the lock.
    let lost = said("it has changed meanwhile") && !said("the store cannot be reached");
    assert!(!lost, "two handlers had the lock at once: {answers:?}");
    for answer in &answers {
        assert_eq!(answer.status, StatusCode::OK, "{answers:?}");
        assert_eq!(answer.body["mode"], "write");
    }
    let last = get(servers[0], "1", NO_TIME).await;
    assert_eq!(
        last.body,
        json!({"id": "1", "version": WRITES, "content": "x", "mode": "read"})
    );
}

#[tokio::test]
async fn a_read_waits_for_a_write_and_reads_share() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[]).await;
    let begun = Instant::now();
    let write = put(a.url(), "1", HOLD, "new");
    let read = async {
        eventually("the write holds its lock", 10 * HOLD, async || {
            !locks_in(&redis).await.is_empty()
        })
        .await;
        get(b.url(), "1", NO_TIME).await
    };
    let (_, read) = tokio::join!(write, read);
    assert_eq!(read.body["content"], "new");
    assert!(begun.elapsed() >= HOLD);

    let begun = Instant::now();
    let reads = (0..8).map(|i| get([a.url(), b.url()][i % 2], "1", HOLD));
    let answers = join_all(reads).await;
    assert!(answers.iter().all(|read| read.status == StatusCode::OK));
    // One after the other they would take eight times the hold.
    assert!(begun.elapsed() < 4 * HOLD, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_delete_excludes_and_what_is_absent_is_not_found() {
    let server = DemoServer::start(&[]).await;
    assert_eq!(
        get(server.url(), "1", NO_TIME).await.status,
        StatusCode::NOT_FOUND
    );
    put(server.url(), "1", NO_TIME, "x").await;
    let url = format!("{}/documents/1", server.url());
    let deleted = answer(Client::new().delete(&url)).await;
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(deleted.body["mode"], "write");
    assert_eq!(
        get(server.url(), "1", NO_TIME).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_document_that_is_deleted_and_written_again_has_a_new_version() {
    let server = DemoServer::start(&[]).await;
    put(server.url(), "1", NO_TIME, "x").await;
    let url = format!("{}/documents/1", server.url());
    answer(Client::new().delete(&url)).await;
    let again = put(server.url(), "1", NO_TIME, "y").await;
    assert_eq!(again.body["version"], 3, "{again:?}");
}

#[tokio::test]
async fn a_request_cannot_ask_for_more_than_a_minute() {
    let server = DemoServer::start(&[]).await;
    let endless = put(server.url(), "1", Duration::from_secs(61), "x").await;
    assert_eq!(endless.status, StatusCode::BAD_REQUEST, "{endless:?}");
}

#[tokio::test]
async fn other_documents_and_health_do_not_wait() {
    let server = DemoServer::start(&[("LOCK_WAIT_MS", "100")]).await;
    let long = put(server.url(), "1", Duration::from_secs(1), "x");
    let others = async {
        eventually("the lock is held", Duration::from_secs(1), async || {
            get(server.url(), "1", NO_TIME).await.status == StatusCode::LOCKED
        })
        .await;
        assert_eq!(
            put(server.url(), "2", NO_TIME, "y").await.status,
            StatusCode::OK
        );
        let health = reqwest::get(format!("{}/healthz", server.url())).await;
        assert_eq!(health.expect("an answer").status(), StatusCode::OK);
    };
    tokio::join!(long, others);
}

#[tokio::test]
async fn a_wait_that_is_over_is_423_with_retry_after() {
    let redis = RedisServer::start().await;
    let [a, b] = pair(&redis, &[("LOCK_WAIT_MS", "200")]).await;
    let long = put(a.url(), "1", Duration::from_secs(1), "x");
    let late = async {
        eventually("the lock is held", Duration::from_secs(1), async || {
            !locks_in(&redis).await.is_empty()
        })
        .await;
        let begun = Instant::now();
        let late = put(b.url(), "1", NO_TIME, "y").await;
        assert_eq!(late.status, StatusCode::LOCKED, "{late:?}");
        assert!(
            late.retry_after.is_some_and(|seconds| seconds >= 1),
            "{late:?}"
        );
        assert_eq!(late.body["type"], "lock-contended");
        assert!(begun.elapsed() >= Duration::from_millis(200));
    };
    tokio::join!(long, late);
}

#[tokio::test]
async fn prometheus_sees_routes_and_modes_and_no_documents() {
    let settings = [("LOCK_WAIT_MS", "100"), ("ADMIN_LISTEN", "127.0.0.1:0")];
    let server = DemoServer::start(&settings).await;
    let long = put(server.url(), "secret", HOLD, "x");
    let late = async {
        eventually("the lock is held", 10 * HOLD, async || {
            get(server.url(), "secret", NO_TIME).await.status == StatusCode::LOCKED
        })
        .await;
    };
    let (kept, ()) = tokio::join!(long, late);
    assert_eq!(kept.status, StatusCode::OK);

    let public = reqwest::get(format!("{}/metrics", server.url())).await;
    let public = public.expect("an answer").status();
    assert_eq!(public, StatusCode::NOT_FOUND, "only operators see it");
    let shown = reqwest::get(server.printed_url("/metrics").await).await;
    let shown = shown.expect("an answer");
    assert_eq!(shown.headers()["content-type"], "text/plain; version=0.0.4");
    let shown = shown.text().await.expect("text");
    for series in [
        r#"distributed_lock_hold_duration_seconds_count{route="/documents/{id}",mode="write"} 1"#,
        r#"distributed_lock_contended_total{route="/documents/{id}",mode="read"} 1"#,
        r#"distributed_lock_waiters{route="/documents/{id}",mode="read"} 0"#,
    ] {
        assert!(shown.contains(series), "{series} in {shown}");
    }
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn an_upload_that_does_not_end_holds_no_lock() {
    let redis = RedisServer::start().await;
    let settings = [("LOCK_WAIT_MS", "0")];
    let [a, b] = pair(&redis, &settings).await;
    let address = a.url().trim_start_matches("http://");
    let mut endless = TcpStream::connect(address).await.expect("a connection");
    let half = b"PUT /documents/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf";
    endless.write_all(half).await.expect("sent");
    // Long enough for the server to have read it. If it is too short, the test proves less, but does not fail.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let other = put(b.url(), "1", NO_TIME, "whole").await;
    assert_eq!(other.status, StatusCode::OK, "{other:?}");
    drop(endless);
}
