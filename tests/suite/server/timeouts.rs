//! Requests that take too long.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::{NO_TIME, SOON, locks_in, put};
use crate::support::{DemoServer, RedisServer, eventually};

/// The server answers such a request, drops its handler, and releases its lock long before the lease is over.
#[tokio::test]
async fn a_request_that_takes_too_long_is_ended_and_gives_its_lock_back() {
    let redis = RedisServer::start().await;
    let url = redis.url();
    let server = DemoServer::start(&[
        ("REDIS_URL", &url),
        ("LOCK_LEASE_MS", "60000"),
        ("LOCK_WAIT_MS", "100"),
        ("WORK_LIMIT_MS", "300"),
    ])
    .await;
    let long = put(server.url(), "42", Duration::from_secs(30), "never written").await;
    // It may have done a part of its work: a 503 would be repeated by some clients.
    assert_eq!(long.status, StatusCode::INTERNAL_SERVER_ERROR, "{long:?}");
    // The answer does not come from a lock layer, which would send a problem body.
    assert_eq!(long.body, Value::Null, "{long:?}");
    eventually("the lock is released", SOON, async || {
        let locks = locks_in(&redis).await;
        locks.is_empty().then_some(()).ok_or(locks)
    })
    .await;
    let next = put(server.url(), "42", NO_TIME, "written").await;
    assert_eq!(next.status, StatusCode::OK, "{next:?}");
    assert!(next.body.to_string().contains("written"), "{next:?}");
}
