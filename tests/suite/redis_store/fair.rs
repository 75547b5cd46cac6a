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
    // Redisson's score, plus seconds: the grant of the previous waiter will subtract its 60 s.
    let waits = scores(&server).await;
    assert_eq!(waits[0], (now + 60_000) as f64);
    let behind = waits[1] - waits[0];
    assert!(behind > 1_000.0 && behind < 10_000.0, "{behind}");
    assert!(releases(&store, &holder).await);
    let left = retry_after(&store, &next).await;
    assert_eq!(left, Duration::from_secs(1), "no busy loop");
    // Its score passes: it is dropped, as Redisson does.
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
async fn a_score_is_near_however_long_the_patience_and_the_queue() {
    let (server, store) = server_and_store().await;
    let holder = lasting(fair(), Duration::from_secs(3600));
    assert!(asks(&store, &holder).await);
    let mut waiters = Vec::new();
    for _ in 0..20 {
        let waiter = fair().patience(Duration::MAX);
        assert!(!asks(&store, &waiter).await);
        waiters.push(waiter);
    }
    let near = |scores: &[f64], now: f64| {
        for score in scores {
            assert!(*score > now && *score < now + 10_000.0, "{score} at {now}");
        }
    };
    near(&scores(&server).await, time(&server).await);
    // It moves along with each question.
    make_older(&server, "redisson_lock_timeout:{k}", 2_500).await;
    make_older(&server, "tower_lock_alive:{k}", 2_500).await;
    for waiter in &waiters {
        assert!(!asks(&store, waiter).await);
    }
    let now = time(&server).await;
    near(&scores(&server).await, now);
    let least = scores(&server).await.into_iter().reduce(f64::min).unwrap();
    assert!(least > now + 4_000.0, "{least} at {now}");
    // The scores of the remaining waiters do not change.
    let before = scores(&server).await;
    store.withdraw(&waiters[0], false).await.unwrap();
    assert_eq!(scores(&server).await, before[1..]);
}

/// A grant of Redisson subtracts its own wait, 300 s, from the scores of all remaining waiters
/// (PROTOCOL 1.2).
#[tokio::test]
async fn a_waiter_behind_redissons_outlives_their_grants() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let holder = fair();
    assert!(asks(&store, &holder).await);
    let now = time(&server).await;
    for (n, id) in ["java:1", "java:2"].into_iter().enumerate() {
        let score = now + 30_000.0 + 300_000.0 * (n + 1) as f64;
        redis.rpush("redisson_lock_queue:{k}", id).await.unwrap();
        redis
            .zadd("redisson_lock_timeout:{k}", id, score)
            .await
            .unwrap();
    }
    let (waiter, next) = (fair(), fair());
    assert!(!asks(&store, &waiter).await && !asks(&store, &next).await);
    // A minute passes, and both continue to ask.
    for _ in 0..24 {
        for key in ["redisson_lock_timeout:{k}", "tower_lock_alive:{k}"] {
            make_older(&server, key, 2_500).await;
        }
        assert!(!asks(&store, &waiter).await && !asks(&store, &next).await);
    }
    for id in ["java:1", "java:2"] {
        redis.ltrim("redisson_lock_queue:{k}", 1, -1).await.unwrap();
        redis.zrem("redisson_lock_timeout:{k}", id).await.unwrap();
        make_older(&server, "redisson_lock_timeout:{k}", 300_000).await;
    }
    let now = time(&server).await;
    for score in scores(&server).await {
        assert!(
            score > now + 1_000.0,
            "{score} at {now}: Redisson would drop it"
        );
        assert!(
            score < now + 40_000.0,
            "{score} at {now}: Redisson would wait for it"
        );
    }
    // The first waiters get a near score again with their next question.
    assert!(!asks(&store, &waiter).await);
    assert!(scores(&server).await[0] < time(&server).await + 10_000.0);
    assert!(releases(&store, &holder).await && asks(&store, &waiter).await);
    assert!(releases(&store, &waiter).await && asks(&store, &next).await);
    assert!(releases(&store, &next).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn a_live_head_whose_score_has_passed_keeps_its_place() {
    let (server, store) = server_and_store().await;
    let (holder, first, last) = (fair(), fair(), fair());
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &first).await && !asks(&store, &last).await);
    make_older(&server, "redisson_lock_timeout:{k}", 300_000).await;
    assert!(!asks(&store, &last).await);
    let now = time(&server).await;
    let least = scores(&server).await.into_iter().reduce(f64::min).unwrap();
    assert!(least > now, "{least} at {now}: Redisson would drop it");
    assert!(releases(&store, &holder).await);
    assert!(!asks(&store, &last).await && asks(&store, &first).await);
}

/// Redisson drops a head by its score alone.
#[tokio::test]
async fn a_live_waiter_that_redisson_dropped_is_first_again() {
    let (server, store) = server_and_store().await;
    let (holder, first, last) = (fair(), fair(), fair());
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &first).await && !asks(&store, &last).await);
    drop_head(&server, &first).await;
    assert!(!asks(&store, &first).await);
    assert_eq!(
        queue(&server).await,
        [&first, &last].map(|w| w.hold.id.to_string())
    );
    assert!(releases(&store, &holder).await);
    assert!(!asks(&store, &last).await && asks(&store, &first).await);
}

#[tokio::test]
async fn nothing_is_left_of_a_live_waiter_that_redisson_dropped_when_it_is_granted() {
    let (server, store) = server_and_store().await;
    let (holder, waiter) = (fair(), fair());
    assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
    drop_head(&server, &waiter).await;
    assert!(releases(&store, &holder).await);
    assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
    assert_eq!(server.dump().await, Dump::new());
}

#[tokio::test]
async fn our_list_of_living_waiters_outlasts_their_places() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let (holder, waiter) = (lasting(fair(), Duration::from_secs(100)), fair());
    assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
    let ttl = async || server.dump().await["tower_lock_alive:{k}"].ttl.unwrap();
    assert!(ttl().await < Duration::from_secs(10));
    let far = time(&server).await + 60_000.0;
    redis
        .rpush("redisson_lock_queue:{k}", "java:1")
        .await
        .unwrap();
    redis
        .zadd("redisson_lock_timeout:{k}", "java:1", far)
        .await
        .unwrap();
    assert!(!asks(&store, &fair()).await);
    let left = ttl().await;
    assert!(left > Duration::from_secs(60), "{left:?}");
    assert!(!asks(&store, &waiter).await);
    assert!(ttl().await > Duration::from_secs(60));
}

/// The number of dead waiters does not lengthen the wait of live ones.
#[tokio::test]
async fn many_dead_heads_are_dropped_a_few_at_a_time() {
    let (server, store) = server_and_store().await;
    let (holder, alive) = (fair(), fair());
    assert!(asks(&store, &holder).await);
    for _ in 0..100 {
        let dead = fair();
        assert!(!asks(&store, &dead).await);
        lapse(&server, &dead).await;
    }
    assert!(!asks(&store, &alive).await);
    assert!(releases(&store, &holder).await);
    let mut questions = 0;
    while let Outcome::Refused { retry_after } = store.acquire(&alive).await.unwrap() {
        assert!(retry_after < Duration::from_millis(10), "{retry_after:?}");
        questions += 1;
        assert!(questions < 100);
    }
    assert!(releases(&store, &alive).await);
    assert_eq!(server.dump().await, Dump::new());
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
