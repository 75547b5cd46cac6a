//! The keys that fencing leaves in Redis.

use std::time::Duration;

use redis::AsyncTypedCommands;
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use super::client;
use crate::support::RedisServer;

const COUNTER: &str = "redisson_lock_token:{n}";

#[tokio::test]
async fn the_counter_stays_for_a_month_unless_another_retention_is_set() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let redis = RedisServer::start().await;
    let locks = client(redis.url()).await;
    let guard = locks.lock("n").fenced().await.expect("free");
    guard.release().await.expect("held");
    let left = redis.dump().await[COUNTER].ttl.expect("it expires");
    assert!(left > 29 * DAY && left <= 30 * DAY);

    let store = RedisStore::connect(redis.url())
        .await
        .expect("Redis is there");
    let endless = LockClient::builder(store.clone())
        .token_retention(None)
        .build();
    let guard = endless.lock("n").fenced().await.expect("free");
    let first = guard.fencing_token().expect("it was asked for");
    guard.release().await.expect("held");
    assert_eq!(redis.dump().await[COUNTER].ttl, None);

    let forgetful = LockClient::builder(store)
        .token_retention(Duration::from_secs(60))
        .build();
    let uses = async |mode| {
        let guard = forgetful.lock("n").mode(mode).fenced().await.expect("free");
        assert!(guard.fencing_token() > Some(first));
        guard.release().await.expect("held");
        redis.dump().await[COUNTER].ttl
    };
    for mode in [LockMode::Reentrant, LockMode::Fair] {
        // Redisson's counters do not expire, and its tokens begin at 1 without one.
        assert_eq!(uses(mode).await, None);
        redis
            .connection()
            .await
            .del(COUNTER)
            .await
            .expect("allowed");
        for _ in 0..2 {
            let left = uses(mode).await.expect("it expires");
            assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(50));
        }
        redis
            .connection()
            .await
            .persist(COUNTER)
            .await
            .expect("allowed");
    }
}
