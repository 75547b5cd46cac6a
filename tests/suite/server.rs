//! The demo server, over real sockets and in real processes.

mod compose;
mod documents;
mod faults;
mod late;
mod settings;
mod signatures;
mod timeouts;
mod transfers;
mod webhooks;

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::Value;

use crate::support::{DemoServer, Monitor, RedisServer, eventually};

/// The longest time that anything takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Long enough for a busy machine, and half of the lease of a server whose lease is not set.
const SOONER: Duration = Duration::from_secs(15);

/// Two servers that share one Redis.
async fn pair(redis: &RedisServer, variables: &[(&str, &str)]) -> [DemoServer; 2] {
    let url = redis.url();
    let mut all = vec![("REDIS_URL", url.as_str())];
    all.extend(variables);
    [DemoServer::start(&all).await, DemoServer::start(&all).await]
}

/// Waits until Redis has run a command that contains `text`.
async fn until_seen(monitor: &Monitor<'_>, text: &str) {
    eventually("Redis has run it", SOON, async || {
        let lines = monitor.lines().await;
        lines.iter().any(|line| line.contains(text))
    })
    .await;
}

/// The answer of a server.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    body: Value,
    retry_after: Option<u64>,
    replayed: bool,
}

async fn put(server: &str, id: &str, hold: Duration, content: &str) -> Answer {
    let url = format!("{server}/documents/{id}?hold_ms={}", hold.as_millis());
    answer(Client::new().put(url).body(content.to_owned())).await
}

async fn get(server: &str, id: &str, hold: Duration) -> Answer {
    let url = format!("{server}/documents/{id}?hold_ms={}", hold.as_millis());
    answer(Client::new().get(url)).await
}

async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.expect("the server answers");
    let retry_after = response
        .headers()
        .get("retry-after")
        .map(|value| value.to_str().expect("text").parse().expect("seconds"));
    Answer {
        status: response.status(),
        replayed: response.headers().contains_key("idempotent-replayed"),
        retry_after,
        body: response
            .json()
            .await
            .map_or(Value::Null, |mut body: Value| {
                if body.get("type").is_some() {
                    body["type"] = crate::layer::kind_of(&body).into();
                }
                body
            }),
    }
}

/// The keys of locks in Redis and the other keys of this crate, without records.
async fn locks_in(redis: &RedisServer) -> Vec<String> {
    let dump = redis.dump().await;
    let kept = ["documents:", "accounts:", "orders:", "tower_lock_record:"];
    dump.into_keys()
        .filter(|key| !kept.iter().any(|kept| key.starts_with(kept)))
        .collect()
}

const NO_TIME: Duration = Duration::ZERO;
