//! A handler ends while its write is under way. The write arrives when another request has the lock.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;

use super::webhooks::{SECRET, deliver};
use super::{Answer, NO_TIME, SOON, get, put, transfers, until_seen};
use crate::support::{DemoServer, Proxy, RedisServer, eventually};

/// The time between a handler's read and its write, long enough to hold the write back.
const BETWEEN: u64 = 1000;

/// Two servers on one Redis. The data of the first goes through a proxy, its locks do not.
struct Pair {
    redis: RedisServer,
    proxy: Proxy,
    late: DemoServer,
    other: DemoServer,
}

impl Pair {
    async fn start() -> Self {
        let redis = RedisServer::start().await;
        let proxy = Proxy::in_front_of(&redis).await;
        let (url, data) = (redis.url(), proxy.url());
        let settings = [("REDIS_URL", url.as_str()), ("WEBHOOK_SECRET", SECRET)];
        let other = DemoServer::start(&settings).await;
        // Redis knows the script of a write: one that arrives late runs.
        put(other.url(), "known", NO_TIME, "x").await;
        let through = [settings[0], settings[1], ("DATA_URL", &data)];
        let late = DemoServer::start(&through).await;
        Self {
            redis,
            proxy,
            late,
            other,
        }
    }

    /// Holds back the write of a request for `name` to the first server. The handler stops waiting for it and
    /// fails.
    async fn give_up(&self, name: &str, request: impl Future<Output = Answer>) {
        let monitor = self.redis.monitor().await;
        let hold = async {
            until_seen(&monitor, &format!("\"GET\" \"{name}\"")).await;
            // The pool checks the connection, then sends the write on it.
            let monitor = self.redis.monitor().await;
            self.proxy.requests.delay(Duration::from_millis(200));
            until_seen(&monitor, "\"PING\"").await;
            self.proxy.requests.hold();
            self.proxy.requests.delay(Duration::ZERO);
            self.proxy.requests.until_caught().await;
        };
        let (answer, ()) = tokio::join!(request, hold);
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    }

    /// Delivers the write that was held back, and waits until Redis has run it.
    async fn deliver(&self, name: &str) {
        let monitor = self.redis.monitor().await;
        self.proxy.requests.release();
        until_seen(&monitor, &format!("\"1\" \"{name}\"")).await;
    }
}

#[tokio::test]
async fn a_late_write_does_not_replace_a_confirmed_document() {
    let pair = Pair::start().await;
    let between = Duration::from_millis(BETWEEN);
    let stale = put(pair.late.url(), "1", between, "stale");
    pair.give_up("documents:1", stale).await;
    let fresh = put(pair.other.url(), "1", NO_TIME, "fresh").await;
    assert_eq!(fresh.status, StatusCode::OK, "{fresh:?}");
    pair.deliver("documents:1").await;
    let document = get(pair.other.url(), "1", NO_TIME).await;
    assert_eq!(document.body["content"], "fresh", "{document:?}");
}

#[tokio::test]
async fn a_late_write_and_the_next_transfer_keep_the_sum() {
    let pair = Pair::start().await;
    let (late, other) = (pair.late.url(), pair.other.url());
    let first = json!({"from": "a", "to": "b", "amount": 300});
    pair.give_up("accounts:b", transfers::transfer(late, first, BETWEEN))
        .await;
    let second = json!({"from": "a", "to": "c", "amount": 100});
    let monitor = pair.redis.monitor().await;
    let arrive = async {
        until_seen(&monitor, "\"GET\" \"accounts:c\"").await;
        pair.proxy.requests.release();
    };
    let (second, ()) = tokio::join!(transfers::transfer(other, second, 1000), arrive);
    assert_eq!(second.status, StatusCode::SERVICE_UNAVAILABLE, "{second:?}");
    let mut sum = 0;
    for id in ["a", "b", "c"] {
        let account = transfers::account(other, id, 0).await;
        sum += account.body["balance"].as_u64().expect("a balance");
    }
    assert_eq!(sum, 3000);
}

#[tokio::test]
async fn a_webhook_whose_write_was_late_counts_once() {
    let pair = Pair::start().await;
    let first = deliver(pair.late.url(), "msg_1", "7", BETWEEN);
    pair.give_up("orders:7", first).await;
    pair.proxy.requests.release();
    eventually("the late write has arrived", SOON, async || {
        pair.redis.dump().await.contains_key("orders:7")
    })
    .await;
    let again = deliver(pair.other.url(), "msg_1", "7", 0).await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
    assert_eq!(again.body["processed"], 1, "{again:?}");
    let next = deliver(pair.other.url(), "msg_2", "7", 0).await;
    assert_eq!(next.body["processed"], 2, "{next:?}");
}
