//! The client on a real Redis, with failures.

mod busy;
mod cancelled;
mod cooperative;
pub(crate) mod costs;
mod events;
pub(crate) mod faults;
mod fenced;
mod minimum;
mod namespace;
mod once;
mod outsiders;
mod several;
mod small;
mod subscriptions;
mod traces;
pub(crate) mod turns;
mod waits;
mod work;

use std::collections::BTreeSet;
use std::time::Duration;

use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use crate::support::{RedisServer, eventually};

const SOON: Duration = Duration::from_secs(10);

const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

async fn client(url: String) -> LockClient {
    LockClient::new(RedisStore::connect(url).await.expect("Redis is there"))
}

/// Loads the mode's scripts into the server, so that the next question takes one round trip.
async fn know_scripts(locks: &LockClient, mode: LockMode) {
    let guard = locks.lock("scripts").mode(mode).await.expect("free");
    guard.release().await.expect("held");
}

/// Waits until neither a key nor a subscription is left.
async fn until_nothing_is_left(redis: &RedisServer) {
    eventually("nothing is left in Redis", SOON, async || {
        let keys: BTreeSet<_> = redis.dump().await.into_keys().collect();
        let channels = redis.pubsub_channels().await;
        match keys.is_empty() && channels.is_empty() {
            true => Ok(()),
            false => Err((keys, channels)),
        }
    })
    .await;
}
