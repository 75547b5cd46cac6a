//! A queue that Redisson's clients share: its scores, and waiters that it drops.

use super::*;

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

/// It may be the only one that asks again before its next look: Redisson wakes the waiter behind it.
#[tokio::test]
async fn a_live_waiter_that_redisson_dropped_takes_the_free_lock_when_it_asks() {
    let (server, store) = server_and_store().await;
    let (holder, first, last) = (fair(), fair(), fair());
    assert!(asks(&store, &holder).await);
    assert!(!asks(&store, &first).await && !asks(&store, &last).await);
    assert!(releases(&store, &holder).await);
    drop_head(&server, &first).await;
    assert!(asks(&store, &first).await);
    assert_eq!(queue(&server).await, [last.hold.id.to_string()]);
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

/// Adds a waiter of Redisson at the end of the queue, which may block it for a minute.
async fn redisson_queues(server: &RedisServer) {
    let mut redis = server.connection().await;
    let far = time(server).await + 60_000.0;
    redis
        .rpush("redisson_lock_queue:{k}", "java:1")
        .await
        .unwrap();
    redis
        .zadd("redisson_lock_timeout:{k}", "java:1", far)
        .await
        .unwrap();
}

/// The names of the keys in Redis.
async fn keys(server: &RedisServer) -> Vec<String> {
    server.dump().await.into_keys().collect()
}

const REDISSONS: [&str; 2] = ["redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"];

#[tokio::test]
async fn nothing_of_ours_is_left_when_redissons_alone_wait() {
    let granted: [&str; 3] = ["k", REDISSONS[0], REDISSONS[1]];
    let (server, store) = server_and_store().await;
    let (holder, last) = (fair(), fair());
    assert!(asks(&store, &holder).await && !asks(&store, &last).await);
    redisson_queues(&server).await;
    assert!(releases(&store, &holder).await && asks(&store, &last).await);
    assert_eq!(keys(&server).await, granted);
    let gone = fair();
    assert!(!asks(&store, &gone).await);
    store.withdraw(&gone, false).await.unwrap();
    assert_eq!(keys(&server).await, granted);
    // A release drops a dead head, and wakes Redisson's.
    let dead = fair();
    assert!(!asks(&store, &dead).await);
    let mut redis = server.connection().await;
    let id = dead.hold.id.to_string();
    redis.lrem("redisson_lock_queue:{k}", 1, &id).await.unwrap();
    redis.lpush("redisson_lock_queue:{k}", &id).await.unwrap();
    lapse(&server, &dead).await;
    assert!(releases(&store, &last).await);
    assert_eq!(keys(&server).await, REDISSONS);
}

/// Redisson's scripts do not prolong what we have set.
#[tokio::test]
async fn a_queue_of_redissons_alone_keeps_no_expiry_of_ours() {
    for withdraws in [false, true] {
        let (server, store) = server_and_store().await;
        let (holder, last) = (fair(), fair());
        assert!(asks(&store, &holder).await && !asks(&store, &last).await);
        redisson_queues(&server).await;
        let dump = server.dump().await;
        assert!(REDISSONS.iter().all(|key| dump[*key].ttl.is_some()));
        if withdraws {
            store.withdraw(&last, false).await.unwrap();
        } else {
            assert!(releases(&store, &holder).await && asks(&store, &last).await);
        }
        let dump = server.dump().await;
        assert!(REDISSONS.iter().all(|key| dump[*key].ttl.is_none()));
    }
}

#[tokio::test]
async fn our_list_of_living_waiters_outlasts_their_places() {
    let (server, store) = server_and_store().await;
    let (holder, waiter) = (lasting(fair(), Duration::from_secs(100)), fair());
    assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
    let ttl = async || server.dump().await["tower_lock_alive:{k}"].ttl.unwrap();
    let left = ttl().await;
    assert!(left <= Duration::from_secs(8), "{left:?}: a place is near");
    redisson_queues(&server).await;
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
