//! Servers and Redis that die, hang and restart.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::{NO_TIME, SOON, SOONER, get, locks_in, pair, put, until_seen};
use crate::support::{DemoServer, RedisServer, eventually};

async fn until_held(redis: &RedisServer) {
    eventually("the lock is held", SOON, async || {
        !locks_in(redis).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_killed_holder_is_free_within_its_lease() {
    let redis = RedisServer::start().await;
    let [mut a, b] = pair(&redis, &[("LOCK_LEASE_MS", "1000")]).await;
    let url = a.url().to_owned();
    tokio::spawn(async move {
        let request = reqwest::Client::new().put(format!("{url}/documents/1?hold_ms=60000"));
        let _ = request.body("never").send().await;
    });
    until_held(&redis).await;
    a.process.kill9();
    // It waits for ten seconds, and the lease that was not set is thirty.
    let next = put(b.url(), "1", NO_TIME, "next").await;
    assert_eq!(next.status, StatusCode::OK, "{next:?}");
    assert_eq!(next.body["version"], 1);
}

#[tokio::test]
async fn a_request_outlives_many_leases_and_a_stop_finishes_it() {
    let redis = RedisServer::start().await;
    let settings = [("LOCK_LEASE_MS", "1000"), ("LOCK_WAIT_MS", "1000")];
    let [mut a, b] = pair(&redis, &settings).await;
    let long = put(a.url(), "1", Duration::from_secs(4), "kept");
    let meanwhile = async {
        until_held(&redis).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let contender = put(b.url(), "1", NO_TIME, "stolen").await;
        assert_eq!(contender.status, StatusCode::LOCKED, "{contender:?}");
    };
    let (kept, ()) = tokio::join!(long, meanwhile);
    assert_eq!(kept.status, StatusCode::OK, "{kept:?}");

    let url = a.url().to_owned();
    let last = put(&url, "1", Duration::from_millis(500), "last");
    let stop = async {
        until_held(&redis).await;
        a.process.terminate();
    };
    let (last, ()) = tokio::join!(last, stop);
    assert_eq!(last.status, StatusCode::OK);
    assert_eq!(get(b.url(), "1", NO_TIME).await.body["version"], 2);
    assert!(a.process.end().await.success());
    assert!(locks_in(&redis).await.is_empty());
}

#[tokio::test]
async fn a_server_paused_past_its_lease_does_not_answer_as_if_it_had_not_been() {
    let redis = RedisServer::start().await;
    let [mut a, b] = pair(&redis, &[("LOCK_LEASE_MS", "500")]).await;
    let url = a.url().to_owned();
    let paused = put(&url, "1", Duration::from_millis(1000), "stale");
    let monitor = redis.monitor().await;
    let overtaking = async {
        // A server that is paused before it gets its grant would only ask again.
        until_seen(&monitor, "\"GET\" \"documents:1\"").await;
        a.process.pause();
        let overtaker = put(b.url(), "1", Duration::from_millis(1500), "fresh");
        let resume = async {
            tokio::time::sleep(Duration::from_millis(1000)).await;
            a.process.resume();
        };
        tokio::join!(overtaker, resume).0
    };
    let (paused, overtaker) = tokio::join!(paused, overtaking);
    assert_eq!(overtaker.status, StatusCode::OK, "{overtaker:?}");
    assert_eq!(
        paused.status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "{paused:?}"
    );
    assert_eq!(paused.body["type"], "lock-lost");
    assert_eq!(paused.body["outcome"], "unknown");
}

#[tokio::test]
async fn a_stolen_lock_is_500_and_never_the_handlers_answer() {
    let redis = RedisServer::start().await;
    let [a, _b] = pair(&redis, &[]).await;
    let robbed = put(a.url(), "1", Duration::from_millis(600), "x");
    let theft = async {
        until_held(&redis).await;
        let mut connection = redis.connection().await;
        let () = redis::cmd("FLUSHALL")
            .query_async(&mut connection)
            .await
            .expect("flushed");
    };
    let (robbed, ()) = tokio::join!(robbed, theft);
    assert_eq!(
        robbed.status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "{robbed:?}"
    );
    assert_eq!(robbed.body["type"], "lock-lost");
}

#[tokio::test]
async fn a_dead_redis_is_503_at_once_and_comes_back_without_a_restart() {
    let mut redis = RedisServer::start().await;
    let server = DemoServer::start(&[("REDIS_URL", &redis.url()), ("LOCK_WAIT_MS", "20000")]).await;
    assert_eq!(
        put(server.url(), "1", NO_TIME, "x").await.status,
        StatusCode::OK
    );
    redis.kill9();
    for _ in 0..3 {
        let begun = Instant::now();
        let answer = put(server.url(), "1", NO_TIME, "y").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
        assert_eq!(answer.body["type"], "lock-unavailable");
        assert!(answer.retry_after.is_some());
        assert!(begun.elapsed() < SOONER, "{:?}", begun.elapsed());
    }
    redis.restart().await;
    eventually("it serves again", SOON, async || {
        put(server.url(), "1", NO_TIME, "z").await.status == StatusCode::OK
    })
    .await;
}

#[tokio::test]
async fn a_hanging_redis_does_not_outlast_the_wait() {
    let mut redis = RedisServer::start().await;
    let server = DemoServer::start(&[("REDIS_URL", &redis.url()), ("LOCK_WAIT_MS", "500")]).await;
    assert_eq!(
        put(server.url(), "1", NO_TIME, "x").await.status,
        StatusCode::OK
    );
    redis.pause();
    let begun = Instant::now();
    let answer = put(server.url(), "1", NO_TIME, "y").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert!(begun.elapsed() < SOONER, "{:?}", begun.elapsed());
    redis.resume();
    // A grant of the hanging server whose answer was lost is withdrawn: the next request does not wait for the end of its lease.
    eventually("it serves again, and nothing is left", SOONER, async || {
        put(server.url(), "1", NO_TIME, "z").await.status == StatusCode::OK
    })
    .await;
}

#[tokio::test]
async fn a_server_says_at_its_start_what_its_store_promises_and_what_weakens_it() {
    let redis = RedisServer::builder()
        .config("maxmemory-policy", "allkeys-lru")
        .start()
        .await;
    let server = DemoServer::start(&[("REDIS_URL", &redis.url())]).await;
    let told = eventually("the audit is printed", SOON, async || {
        let told = server.process.output();
        told.contains("rising tokens").then_some(told)
    })
    .await;
    for expected in [
        "S1 lease exclusion",
        "allkeys-lru evicts locks",
        "appendonly",
    ] {
        assert!(told.contains(expected), "{told}");
    }
}
