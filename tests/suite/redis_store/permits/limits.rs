//! How many permits there are, and who says so.

use super::*;

#[tokio::test]
async fn redissons_limit_counts_and_stays() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    let soon = now_ms(&mut redis).await + 5_000;
    redissons(&server, 1, soon).await;
    let (mine, next) = (permit("n", 3), permit("n", 5));
    assert!(asks(&store, &mine).await);
    let after = retry_after(&store, &next).await;
    assert!(after > Duration::from_secs(2) && after <= Duration::from_secs(5));
    let seen = inspect(&store).await;
    assert_eq!((seen.limit, seen.holders.len()), (Some(2), 2));
    assert!(
        seen.holders
            .iter()
            .any(|holder| holder.id == "fe".repeat(16))
    );
    assert!(releases(&store, &mine).await);
    // No key of it expires, and no attempt changes it.
    for key in ["n", "{n}:timeout"] {
        assert_eq!(entry(&server, key).await.ttl, None);
    }
    redis.del("{n}:timeout").await.unwrap();
    redis.set("n", 2).await.unwrap();
    assert!(asks(&store, &permit("n", 3)).await);
    assert_eq!(inspect(&store).await.limit, Some(2));
}

/// Redisson's `setPermits` adds the difference, and keeps the expiry that an attempt of ours gave the string.
#[tokio::test]
async fn a_limit_that_redisson_sets_counts_while_our_permits_are_held() {
    let (server, store) = server_and_store().await;
    let held = permit("n", 2);
    assert!(asks(&store, &held).await);
    let other = error(&store, &permit("n", 3)).await;
    assert_eq!(other.kind(), StoreErrorKind::Conflict);
    let text = std::error::Error::source(&other).unwrap().to_string();
    assert!(text.contains("2 permits"), "{text}");
    let mut redis = redis_of(&server).await;
    redis.incr("n", 2).await.unwrap();
    let more = [2, 2, 3].map(|named| permit("n", named));
    for attempt in &more {
        assert!(asks(&store, attempt).await);
    }
    assert!(!asks(&store, &permit("n", 2)).await);
    assert_eq!(inspect(&store).await.limit, Some(4));
}

/// A number with an expiry that no attempt and no permit has left, such as a counter of requests.
#[tokio::test]
async fn a_number_of_the_application_is_no_stock_and_stays() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    for number in [17, 0] {
        redis.set_ex("n", number, 600).await.unwrap();
        for patience in [None, Some(LEASE)] {
            let attempt = permit("n", 3).patience(patience);
            assert_eq!(error_kind(&store, &attempt).await, StoreErrorKind::Conflict);
            assert_eq!(free(&server).await, number.to_string());
            assert!(entry(&server, "n").await.ttl.unwrap() <= Duration::from_secs(600));
            assert_eq!(server.dump().await.len(), 1);
        }
    }
}

/// The number that attempts leave when all permits are free binds none that come later.
#[tokio::test]
async fn a_limit_that_attempts_named_ends_with_the_last_permit() {
    let (_server, store) = server_and_store().await;
    for limit in [3, 1, 2] {
        let held = permit("n", limit);
        assert!(asks(&store, &held).await);
        assert_eq!(inspect(&store).await.limit, Some(limit));
        assert!(releases(&store, &held).await);
    }
}

/// Redisson's `addPermits` removes the expiry of the string, and leaves that of the set.
#[tokio::test]
async fn permits_do_not_expire_with_their_set_when_redisson_has_added_some() {
    let (server, store) = server_and_store().await;
    let mine = permit("n", 2);
    assert!(asks(&store, &mine).await);
    redis_of(&server).await.set("n", 2).await.unwrap();
    let renewed = store.renew(&[Renewal::new(mine.hold.clone(), LEASE)]).await;
    assert_eq!(renewed.unwrap(), [HoldStatus::Held]);
    assert_eq!(entry(&server, "{n}:timeout").await.ttl, None);
    assert_eq!(inspect(&store).await.limit, Some(3));
}

/// A waiter of ours keeps the limit that attempts named as long as permits of Redisson are held.
#[tokio::test]
async fn a_long_permit_of_redisson_is_not_forgotten_while_others_wait_for_it() {
    let (server, store) = server_and_store().await;
    let mine = permit("n", 1);
    assert!(asks(&store, &mine).await && releases(&store, &mine).await);
    let mut redis = redis_of(&server).await;
    let end = now_ms(&mut redis).await + 10 * DAY.as_millis() as u64;
    redissons(&server, 0, end).await;
    for key in ["n", "{n}:timeout"] {
        redis.expire(key, 60).await.unwrap();
    }
    assert!(!asks(&store, &patient("n", LockMode::permits(1))).await);
    for key in ["n", "{n}:timeout"] {
        let left = entry(&server, key).await.ttl.expect("ours expires");
        assert!(left > 10 * DAY, "{key}: {left:?}");
    }
}

/// A permit that never expires keeps the limit of a string that expires.
#[tokio::test]
async fn a_permit_without_end_outlives_our_limit() {
    let (server, store) = server_and_store().await;
    let mine = permit("n", 2);
    assert!(asks(&store, &mine).await);
    let mut redis = redis_of(&server).await;
    redis.decr("n", 1).await.unwrap();
    redis
        .zadd("{n}:timeout", &[7u8; 16][..], NEVER)
        .await
        .unwrap();
    let renewed = store.renew(&[Renewal::new(mine.hold.clone(), LEASE)]).await;
    assert_eq!(renewed.unwrap(), [HoldStatus::Held]);
    for key in ["n", "{n}:timeout"] {
        let ttl = entry(&server, key).await.ttl.unwrap();
        assert!(ttl > DAY * 365 * 1000, "{key}: {ttl:?}");
    }
    let seen = inspect(&store).await;
    assert!(
        seen.holders
            .iter()
            .any(|holder| holder.remaining == Duration::MAX)
    );
    assert!(releases(&store, &mine).await);
    assert!(asks(&store, &permit("n", 2)).await);
    assert!(!asks(&store, &permit("n", 2)).await);
}

#[tokio::test]
async fn a_limit_that_is_set_counts_in_place_of_what_attempts_name() {
    let (server, store) = server_and_store().await;
    let admin = LockAdmin::new(store.clone());
    let mut channel = Channel::of(&server).await;
    let held = [permit("n", 2), permit("n", 2)];
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    admin.set_permits("n", 3).await.unwrap();
    assert_eq!(channel.next().await, "1");
    assert_eq!(inspect(&store).await.limit, Some(3));
    let third = permit("n", 7);
    assert!(asks(&store, &third).await && !asks(&store, &permit("n", 2)).await);

    // Fewer than are held: none is granted until enough have ended.
    admin.set_permits("n", 1).await.unwrap();
    assert_eq!(free(&server).await, "-2");
    for attempt in held.iter().chain([&third]) {
        assert!(!asks(&store, &permit("n", 2)).await);
        assert!(releases(&store, attempt).await);
    }
    assert_eq!(channel.next().await, "1");
    assert_eq!(inspect(&store).await.limit, Some(1));
    let dump = server.dump_without_turns().await;
    assert!(
        !dump.is_empty() && dump.values().all(|entry| entry.ttl.is_none()),
        "{dump:?}"
    );
    let one = permit("n", 9);
    assert!(asks(&store, &one).await && !asks(&store, &permit("n", 9)).await);

    // The limit of attempts counts again when no permit is held.
    admin.clear_permit_limit("n").await.unwrap();
    assert_eq!(
        error_kind(&store, &permit("n", 2)).await,
        StoreErrorKind::Conflict
    );
    assert!(releases(&store, &one).await);
    let dump = server.dump().await;
    assert!(dump.values().all(|entry| entry.ttl.is_some()), "{dump:?}");
    assert!(asks(&store, &permit("n", 2)).await && asks(&store, &permit("n", 2)).await);
    assert!(!asks(&store, &permit("n", 2)).await);
}

#[tokio::test]
async fn force_ends_every_permit() {
    let (server, store) = server_and_store().await;
    let admin = LockAdmin::new(store.clone());
    assert!(!admin.force_unlock("n").await.unwrap());
    let held = [permit("n", 3), permit("n", 3)];
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    let mut channel = Channel::of(&server).await;
    assert!(admin.force_unlock("n").await.unwrap());
    assert_eq!(channel.next().await, "3");
    assert!(!admin.force_unlock("n").await.unwrap());
    for attempt in &held {
        assert!(!releases(&store, attempt).await);
    }
    assert_eq!(free(&server).await, "3");
    assert!(!inspect(&store).await.is_held());
}

/// Locks and permits do not share a name, nor do permits and data of the application.
#[tokio::test]
async fn what_holds_no_permits_is_a_conflict_and_stays() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    let admin = LockAdmin::new(store.clone());
    for mode in MODES {
        let lock = attempt("n", mode);
        assert!(asks(&store, &lock).await);
        assert_eq!(
            error_kind(&store, &permit("n", 1)).await,
            StoreErrorKind::Conflict
        );
        assert!(admin.set_permits("n", 1).await.is_err());
        assert!(releases(&store, &lock).await);
        let held = permit("n", 1);
        assert!(asks(&store, &held).await);
        assert_eq!(error_kind(&store, &lock).await, StoreErrorKind::Conflict);
        assert!(releases(&store, &held).await);
        redis.del("n").await.unwrap();
    }
    // No limit has so many digits, and Lua would keep the first 16 of them.
    for data in ["paid", "", "1.5", "0x10", "1234567890123456789"] {
        redis.set("n", data).await.unwrap();
        assert_eq!(
            error_kind(&store, &permit("n", 1)).await,
            StoreErrorKind::Conflict
        );
        assert!(admin.inspect("n").await.is_err() && admin.force_unlock("n").await.is_err());
        assert!(admin.set_permits("n", 1).await.is_err());
        assert_eq!(free(&server).await, data);
    }
}

/// The counter was evicted: the holders still count.
#[tokio::test]
async fn a_counter_that_is_gone_admits_no_more_than_the_limit() {
    let (server, store) = server_and_store().await;
    let held = [permit("n", 2), permit("n", 2)];
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    let mut redis = redis_of(&server).await;
    redis.del("n").await.unwrap();
    assert!(!asks(&store, &permit("n", 2)).await);
    assert!(releases(&store, &held[0]).await);
    assert!(asks(&store, &permit("n", 2)).await);
    assert!(!asks(&store, &permit("n", 2)).await);
    assert_eq!(free(&server).await, "0");
}

/// Attempts have named another limit before, and its key lives for a day.
#[tokio::test]
async fn a_limit_that_redisson_sets_while_no_permit_is_held_counts_whatever_was_named_before() {
    let (server, store) = server_and_store().await;
    let before = permit("n", 10);
    assert!(asks(&store, &before).await && releases(&store, &before).await);
    let _: u64 = server.ask(&["DEL", "n", "{n}:timeout"]).await;
    let () = server.ask(&["SET", "n", "2"]).await;
    let permits = [(); 3].map(|()| permit("n", 10));
    assert!(asks(&store, &permits[0]).await && asks(&store, &permits[1]).await);
    assert!(!asks(&store, &permits[2]).await, "there are two permits");
}
