//! The fair queue.

mod redissons;

use std::time::Duration;

use redis::AsyncTypedCommands;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::{LockStore, WAITER_LIVENESS};

use super::*;
use crate::support::{Dump, Stored};

fn fair() -> Attempt {
    patient("k", LockMode::Fair)
}

#[tokio::test]
async fn waiters_are_granted_in_the_order_of_their_first_question() {
    let (server, store) = server_and_store().await;
    let all: Vec<_> = (0..5).map(|_| fair()).collect();
    assert!(asks(&store, &all[0]).await);
    for waiter in &all[1..] {
        assert!(!asks(&store, waiter).await);
    }
    for (turn, holder) in all.iter().enumerate() {
        for later in all[turn + 1..].iter().rev() {
            assert!(!asks(&store, later).await);
        }
        assert!(releases(&store, holder).await);
        for other in all[turn + 1..].iter().skip(1) {
            assert!(!asks(&store, other).await, "it is not its turn");
        }
        if let Some(next) = all.get(turn + 1) {
            assert!(asks(&store, next).await);
        }
    }
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn only_the_next_in_line_is_woken() {
    let (_server, store) = server_and_store().await;
    let (holder, next, last) = (fair(), fair(), fair());
    assert!(asks(&store, &holder).await);
    let mut wakeups = Vec::new();
    for waiter in [&next, &last] {
        assert!(!asks(&store, waiter).await);
        wakeups.push(store.subscribe(waiter).await.unwrap());
    }
    assert!(releases(&store, &holder).await);
    woken(&mut wakeups[0]).await;
    asleep(&mut wakeups[1]).await;
    // The head gives up while the lock is free: the next waiter is woken at once.
    store.withdraw(&next, false).await.unwrap();
    woken(&mut wakeups[1]).await;
    assert!(asks(&store, &last).await);
}

#[tokio::test]
async fn withdrawing_a_hold_or_releasing_an_expired_one_wakes_the_next() {
    let (server, store) = server_and_store().await;
    let (holder, next) = (fair(), fair());
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &next).await);
    let mut wakeups = store.subscribe(&next).await.unwrap();
    store.withdraw(&holder, true).await.unwrap();
    woken(&mut wakeups).await;

    server.connection().await.del("k").await.unwrap();
    assert!(!releases(&store, &holder).await, "it was gone");
    woken(&mut wakeups).await;
    assert!(asks(&store, &next).await);
}

#[tokio::test]
async fn an_attempt_without_patience_neither_queues_nor_overtakes() {
    let (server, store) = server_and_store().await;
    let (holder, waiter) = (fair(), fair());
    let hurried = attempt("k", LockMode::Fair);
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &hurried).await);
    assert!(!server.dump().await.contains_key("redisson_lock_queue:{k}"));
    assert!(!asks(&store, &waiter).await);
    assert!(releases(&store, &holder).await);
    assert!(!asks(&store, &hurried).await, "a request waits");
    assert_eq!(queue(&server).await, [waiter.hold.id.to_string()]);
    assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
    assert!(asks(&store, &hurried).await);
}

#[tokio::test]
async fn a_head_of_ours_that_stopped_asking_is_skipped() {
    let (server, store) = server_and_store().await;
    let (holder, dead, next, last) = (fair(), fair(), fair(), fair());
    assert!(asks(&store, &holder).await);
    for waiter in [&dead, &next, &last] {
        assert!(!asks(&store, waiter).await);
    }
    let mut wakeups = store.subscribe(&next).await.unwrap();
    assert!(releases(&store, &holder).await);
    let left = retry_after(&store, &last).await;
    assert!(left > Duration::ZERO && left <= WAITER_LIVENESS, "{left:?}");
    asleep(&mut wakeups).await;

    lapse(&server, &dead).await;
    assert!(!asks(&store, &last).await);
    woken(&mut wakeups).await;
    assert_eq!(
        queue(&server).await,
        [&next, &last].map(|w| w.hold.id.to_string())
    );
    // It was only slow: it queues again, at the end.
    assert!(!asks(&store, &dead).await);
    assert!(asks(&store, &next).await && releases(&store, &next).await);
    assert!(!asks(&store, &dead).await);
    assert!(asks(&store, &last).await && releases(&store, &last).await);
    assert!(asks(&store, &dead).await && releases(&store, &dead).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn a_waiter_that_was_slow_in_the_middle_of_the_queue_goes_to_its_end() {
    let (server, store) = server_and_store().await;
    let (holder, first, slow, last) = (fair(), fair(), fair(), fair());
    assert!(asks(&store, &holder).await);
    for waiter in [&first, &slow, &last] {
        assert!(!asks(&store, waiter).await);
    }
    lapse(&server, &slow).await;
    assert!(!asks(&store, &slow).await);
    assert_eq!(
        queue(&server).await,
        [&first, &last, &slow].map(|w| w.hold.id.to_string())
    );
}

#[tokio::test]
async fn plain_and_fair_holds_exclude_each_other() {
    let (_server, store) = server_and_store().await;
    let plain = attempt("k", LockMode::Reentrant);
    let waiter = fair();
    assert!(asks(&store, &plain).await);
    assert!(!asks(&store, &waiter).await);
    assert!(releases(&store, &plain).await);
    assert!(asks(&store, &waiter).await);
    assert!(!asks(&store, &plain).await);
}

/// Both locks have one name, and a waiter of either kind hears of the end of the other.
#[tokio::test]
async fn a_plain_release_wakes_the_first_in_the_queue_and_the_first_in_line() {
    let (server, store) = server_and_store().await;
    let plain = attempt("k", LockMode::Reentrant);
    let (dead, fair, line) = (fair(), fair(), patient("k", LockMode::Reentrant));
    assert!(asks(&store, &plain).await);
    for waiter in [&dead, &fair, &line] {
        assert!(!asks(&store, waiter).await);
    }
    lapse(&server, &dead).await;
    let mut in_queue = store.subscribe(&fair).await.unwrap();
    let mut in_line = store.subscribe(&line).await.unwrap();
    assert!(releases(&store, &plain).await);
    woken(&mut in_queue).await;
    woken(&mut in_line).await;
    assert!(asks(&store, &fair).await && releases(&store, &fair).await);
    assert!(asks(&store, &line).await && releases(&store, &line).await);
    assert_eq!(server.dump().await, Dump::new());
}

async fn queue(server: &RedisServer) -> Vec<String> {
    match &server.dump().await["redisson_lock_queue:{k}"].stored {
        Stored::List(ids) => ids.clone(),
        other => panic!("{other:?}"),
    }
}

async fn scores(server: &RedisServer) -> Vec<f64> {
    match &server.dump().await["redisson_lock_timeout:{k}"].stored {
        Stored::SortedSet(scores) => scores.iter().map(|(_, score)| *score).collect(),
        other => panic!("{other:?}"),
    }
}

/// Changes the data as if the attempt had not asked for a while.
async fn lapse(server: &RedisServer, attempt: &Attempt) {
    let mut redis = server.connection().await;
    let id = attempt.hold.id.to_string();
    redis.zadd("tower_lock_alive:{k}", id, 1).await.unwrap();
}

/// The server's time in ms.
async fn time(server: &RedisServer) -> f64 {
    let mut redis = server.connection().await;
    let (s, us): (u64, u64) = redis::cmd("TIME").query_async(&mut redis).await.unwrap();
    (s * 1000 + us / 1000) as f64
}

/// Subtracts `ms` from all scores of a sorted set.
async fn make_older(server: &RedisServer, key: &str, ms: i64) {
    let mut redis = server.connection().await;
    let script = "for _, m in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do \
                  redis.call('ZINCRBY', KEYS[1], -ARGV[1], m) end";
    let call = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg(key)
        .arg(ms)
        .to_owned();
    call.exec_async(&mut redis).await.unwrap();
}

/// Does what Redisson does to a head whose score has passed.
async fn drop_head(server: &RedisServer, head: &Attempt) {
    let mut redis = server.connection().await;
    let id = head.hold.id.to_string();
    redis.ltrim("redisson_lock_queue:{k}", 1, -1).await.unwrap();
    redis.zrem("redisson_lock_timeout:{k}", id).await.unwrap();
}
