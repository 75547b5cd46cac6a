//! The fair queue.

use std::time::Duration;

use redis::AsyncTypedCommands;
use tower_distributed_lock::store::WAITER_LIVENESS;
use tower_distributed_lock::{LockMode, LockStore};

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
async fn the_next_in_line_is_told_and_nobody_else() {
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
    // The head gives up while the lock is free: the next is told at once.
    store.withdraw(&next, false).await.unwrap();
    woken(&mut wakeups[1]).await;
    assert!(asks(&store, &last).await);
}

#[tokio::test]
async fn withdrawing_a_hold_or_releasing_an_expired_one_tells_the_next() {
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
async fn nobody_without_patience_queues_or_overtakes() {
    let (server, store) = server_and_store().await;
    let (holder, waiter) = (fair(), fair());
    let hurried = attempt("k", LockMode::Fair);
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &hurried).await);
    assert!(!server.dump().await.contains_key("redisson_lock_queue:{k}"));
    assert!(!asks(&store, &waiter).await);
    assert!(releases(&store, &holder).await);
    assert!(!asks(&store, &hurried).await, "somebody waits");
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
    // It was only slow: it lines up again, at the end.
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
async fn a_waiter_keeps_its_place_among_redissons_by_redissons_rule() {
    let (server, store) = server_and_store().await;
    let (holder, next) = (fair(), fair());
    let mut redis = server.connection().await;
    assert!(asks(&store, &holder).await);
    let now: u64 = 1000
        * redis::cmd("TIME")
            .query_async::<(u64, u64)>(&mut redis)
            .await
            .unwrap()
            .0;
    redis
        .rpush("redisson_lock_queue:{k}", "java:1")
        .await
        .unwrap();
    redis
        .zadd("redisson_lock_timeout:{k}", "java:1", now + 60_000)
        .await
        .unwrap();
    assert!(!asks(&store, &next).await);
    // Scores: Redisson's, plus this one's patience.
    let Stored::SortedSet(scores) = server.dump().await["redisson_lock_timeout:{k}"]
        .stored
        .clone()
    else {
        panic!("not a sorted set");
    };
    assert_eq!(
        scores[1],
        (next.hold.id.to_string(), (now + 120_000) as f64)
    );
    assert!(releases(&store, &holder).await);
    let left = retry_after(&store, &next).await;
    assert_eq!(left, Duration::from_secs(1), "no busy loop");
    // Its score passes: it is dropped as Redisson would.
    redis
        .zadd("redisson_lock_timeout:{k}", "java:1", 1)
        .await
        .unwrap();
    assert!(asks(&store, &next).await && releases(&store, &next).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn a_head_without_a_score_blocks_for_seconds_and_not_for_ever() {
    let (server, store) = server_and_store().await;
    let waiter = fair();
    let mut redis = server.connection().await;
    redis
        .rpush("redisson_lock_queue:{k}", "broken:1")
        .await
        .unwrap();
    let left = retry_after(&store, &waiter).await;
    assert!(left > Duration::ZERO && left <= Duration::from_secs(1));
    let Stored::SortedSet(scores) = server.dump().await["redisson_lock_timeout:{k}"]
        .stored
        .clone()
    else {
        panic!("not a sorted set");
    };
    assert_eq!(scores[0].0, "broken:1");
    let until = Duration::from_millis(scores[0].1 as u64);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert!(until < now + Duration::from_secs(31));
}

#[tokio::test]
async fn whoever_leaves_takes_its_patience_off_those_behind() {
    let (server, store) = server_and_store().await;
    let holder = fair();
    let mut waiters = [fair(), fair(), fair()];
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.patience = Some(Duration::from_secs(10 * (n as u64 + 1)));
    }
    assert!(asks(&store, &holder).await);
    for waiter in &waiters {
        assert!(!asks(&store, waiter).await);
    }
    let before = scores(&server).await;
    assert_eq!(before[1] - before[0], 20_000.0);
    assert_eq!(before[2] - before[1], 30_000.0);
    store.withdraw(&waiters[1], false).await.unwrap();
    let after = scores(&server).await;
    assert_eq!(after, [before[0], before[2] - 20_000.0]);
    assert!(releases(&store, &holder).await && asks(&store, &waiters[0]).await);
    assert_eq!(scores(&server).await, [after[1] - 10_000.0]);
    store.withdraw(&waiters[2], false).await.unwrap();
    assert!(releases(&store, &waiters[0]).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn our_list_of_living_waiters_outlasts_their_places() {
    let (server, store) = server_and_store().await;
    let holder = lasting(fair(), Duration::from_secs(100));
    let mut waiter = fair();
    waiter.patience = Some(Duration::from_secs(50));
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &waiter).await);
    let ttl = server.dump().await["tower_lock_alive:{k}"].ttl.unwrap();
    assert!(
        ttl > Duration::from_secs(140) && ttl < Duration::from_secs(160),
        "{ttl:?}"
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

/// Makes it look as if the attempt had not asked for a while.
async fn lapse(server: &RedisServer, attempt: &Attempt) {
    let mut redis = server.connection().await;
    let id = attempt.hold.id.to_string();
    redis.zadd("tower_lock_alive:{k}", id, 1).await.unwrap();
}
