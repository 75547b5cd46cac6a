//! Permits in Redis: their data for Redisson's `RPermitExpirableSemaphore`, and their costs.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use redis::AsyncTypedCommands;
use redis::aio::{MultiplexedConnection, PubSub};
use tower_distributed_lock::store::Renewal;
use tower_distributed_lock::{Inspection, LockAdmin};

use super::bounded::{CROWD, MOST, costliest};
use super::*;
use crate::support::{Entry, Stored};

const DAY: Duration = Duration::from_secs(86_400);

/// Redisson's score of a permit without a lease.
const NEVER: u64 = 922_337_203_685_477;

fn permit(name: &str, limit: u32) -> Attempt {
    attempt(name, LockMode::permits(limit))
}

/// Whether the key is the turn of waiters outside the line, which ends after a few milliseconds.
fn is_outside(key: &str) -> bool {
    key.starts_with("tower_lock_outside:")
}

/// Messages on the channel of permits of `n`.
struct Channel(PubSub);

impl Channel {
    async fn of(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let mut messages = client.get_async_pubsub().await.unwrap();
        messages.subscribe("redisson_sc:{n}").await.unwrap();
        Self(messages)
    }

    async fn next(&mut self) -> String {
        let limit = Duration::from_secs(10);
        let message = tokio::time::timeout(limit, self.0.on_message().next()).await;
        message.expect("a message").unwrap().get_payload().unwrap()
    }
}

async fn entry(server: &RedisServer, key: &str) -> Entry {
    server.dump().await[key].clone()
}

async fn free(server: &RedisServer) -> String {
    match entry(server, "n").await.stored {
        Stored::String(text) => text,
        other => panic!("{other:?}"),
    }
}

async fn redis_of(server: &RedisServer) -> MultiplexedConnection {
    server.connection().await
}

async fn now_ms(redis: &mut MultiplexedConnection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(redis).await.unwrap();
    seconds * 1000 + micros / 1000
}

async fn inspect(store: &RedisStore) -> Inspection {
    LockAdmin::new(store.clone()).inspect("n").await.unwrap()
}

/// As Redisson's `trySetPermits` and `acquire` leave it: no expiry, and an id of 16 bytes.
async fn redissons(server: &RedisServer, free: i64, ends: u64) {
    let mut redis = redis_of(server).await;
    redis.set("n", free).await.unwrap();
    let id: &[u8] = &[0xfe; 16];
    redis.zadd("{n}:timeout", id, ends).await.unwrap();
}

#[tokio::test]
async fn permits_are_redissons() {
    for (name, held, channel) in [
        ("n", "{n}:timeout", "redisson_sc:{n}"),
        ("a{n}b", "a{n}b:timeout", "redisson_sc:a{n}b"),
    ] {
        let (server, store) = server_and_store().await;
        let (one, other) = (permit(name, 3), permit(name, 3));
        let before = now_ms(&mut redis_of(&server).await).await;
        assert!(asks(&store, &one).await && asks(&store, &other).await);
        assert!(asks(&store, &one).await, "twice is once");
        let after = now_ms(&mut redis_of(&server).await).await;
        let dump = server.dump().await;
        assert_eq!(dump.len(), 2, "{dump:?}");
        assert_eq!(dump[name].stored, Stored::String("1".into()));
        let Stored::SortedSet(permits) = &dump[held].stored else {
            panic!("{dump:?}");
        };
        // Entries of one millisecond are in the order of their names.
        let ids: BTreeSet<_> = permits.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!(
            ids,
            [&one, &other].map(|one| one.hold.id.to_string()).into()
        );
        let lease = u64::try_from(LEASE.as_millis()).unwrap();
        for (_, ends) in permits {
            assert!((before + lease..=after + lease).contains(&(*ends as u64)));
        }
        for key in [name, held] {
            let ttl = dump[key].ttl.expect("both expire");
            assert!(ttl > DAY && ttl <= DAY + LEASE, "{key}: {ttl:?}");
        }
        // With patience it would listen on our channel.
        let waiter = permit(name, 3);
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        assert_eq!(server.pubsub_channels().await.get(channel), Some(&1));
        assert!(releases(&store, &one).await && !releases(&store, &one).await);
        woken(&mut wakeups).await;
        assert!(releases(&store, &other).await);
        let mut left = server.dump().await;
        left.retain(|key, _| !is_outside(key));
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[name].stored, Stored::String("3".into()));
        assert!(left[name].ttl.is_some());
    }
}

/// Redisson's listeners wake the number of threads in the message.
#[tokio::test]
async fn a_message_says_how_many_permits_are_free() {
    let (server, store) = server_and_store().await;
    let mut channel = Channel::of(&server).await;
    let held = [permit("n", 3), permit("n", 3), permit("n", 3)];
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    for (attempt, message) in held.iter().zip(["1", "2", "3"]) {
        assert!(releases(&store, attempt).await);
        assert_eq!(channel.next().await, message);
    }
    let withdrawn = permit("n", 3);
    assert!(asks(&store, &withdrawn).await);
    store.withdraw(&withdrawn, true).await.unwrap();
    assert_eq!(channel.next().await, "3");
    assert_eq!(
        error_kind(&store, &withdrawn).await,
        StoreErrorKind::Refused
    );

    // Two lapse, and one of them is taken.
    let lapsing = [(); 2].map(|()| lasting(permit("n", 3), Duration::from_millis(50)));
    for attempt in &lapsing {
        assert!(asks(&store, attempt).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(asks(&store, &permit("n", 3)).await);
    assert_eq!(channel.next().await, "2");
    for attempt in &lapsing {
        assert!(!releases(&store, attempt).await);
        assert!(!holds(&store, attempt).await);
    }
    assert_eq!(free(&server).await, "2");
}

/// An expired permit that is still in the set is gone, and becomes free once.
#[tokio::test]
async fn a_permit_that_lapsed_unseen_is_gone() {
    let (server, store) = server_and_store().await;
    let lapsed = lasting(permit("n", 1), Duration::from_millis(30));
    assert!(asks(&store, &lapsed).await);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(free(&server).await, "0");
    assert!(!holds(&store, &lapsed).await);
    let renewed = store
        .renew(&[Renewal::new(lapsed.hold.clone(), LEASE)])
        .await
        .unwrap();
    assert_eq!(renewed, [HoldStatus::Gone]);
    assert!(!releases(&store, &lapsed).await);
    assert_eq!(free(&server).await, "1");
    assert!(!releases(&store, &lapsed).await);
    assert_eq!(free(&server).await, "1");
}

#[tokio::test]
async fn redissons_limit_counts_and_stays() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    let soon = now_ms(&mut redis).await + 5_000;
    redissons(&server, 1, soon).await;
    let other = error(&store, &permit("n", 3)).await;
    assert_eq!(other.kind(), StoreErrorKind::Conflict);
    let text = std::error::Error::source(&other).unwrap().to_string();
    assert!(text.contains("2 permits"), "{text}");

    let (mine, next) = (permit("n", 2), permit("n", 2));
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
    assert_eq!(
        error_kind(&store, &permit("n", 3)).await,
        StoreErrorKind::Conflict
    );
    assert_eq!(inspect(&store).await.limit, Some(2));
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
    let mut dump = server.dump().await;
    dump.retain(|key, _| !is_outside(key));
    assert!(dump.values().all(|entry| entry.ttl.is_none()), "{dump:?}");
    let one = permit("n", 9);
    assert!(asks(&store, &one).await && !asks(&store, &permit("n", 9)).await);

    // The limit of attempts counts again when no permit is held.
    admin.leave_permits("n").await.unwrap();
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

/// The requests of a process ask side by side: the refusal of another does not end what the first in line hears.
#[tokio::test]
async fn the_first_in_line_listens_to_redisson_although_another_of_its_process_asks() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    let late = now_ms(&mut redis).await + 60_000;
    redissons(&server, 0, late).await;
    let [first, second] = [(); 2].map(|()| patient("n", LockMode::permits(1)));
    let mut wakeups = store.subscribe(&first).await.unwrap();
    assert!(!asks(&store, &first).await);
    // It listens on Redisson's channel now.
    woken(&mut wakeups).await;
    assert!(!asks(&store, &second).await);
    redis.publish("redisson_sc:{n}", "1").await.unwrap();
    woken(&mut wakeups).await;
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
    for data in ["paid", "", "1.5", "0x10"] {
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

/// The cost does not depend on the number of holders, alive or dead.
#[tokio::test]
async fn a_script_costs_the_same_however_many_hold_a_permit() {
    for alive in [true, false] {
        let (server, store) = server_and_store().await;
        let limit = u32::try_from(CROWD).unwrap();
        let lives: i64 = if alive { 60_000 } else { -60_000 };
        let script = "local t = redis.call('TIME') \
             for i = 1, tonumber(ARGV[1]) do \
               redis.call('ZADD', KEYS[2], t[1] * 1000 + ARGV[2], 'crowd:' .. i) \
             end \
             redis.call('SET', KEYS[1], 0, 'PX', 60000)";
        let crowd = redis::cmd("EVAL")
            .arg(script)
            .arg(2)
            .arg("n")
            .arg("{n}:timeout")
            .arg(CROWD)
            .arg(lives)
            .to_owned();
        crowd
            .exec_async(&mut redis_of(&server).await)
            .await
            .unwrap();
        let monitor = server.monitor().await;
        let (asking, gone) = (permit("n", limit), permit("n", limit));
        assert_eq!(asks(&store, &asking).await, !alive);
        let _ = inspect(&store).await;
        store.withdraw(&gone, true).await.unwrap();
        assert_eq!(releases(&store, &asking).await, !alive);
        LockAdmin::new(store.clone())
            .force_unlock("n")
            .await
            .unwrap();
        let most = costliest(&monitor).await;
        assert!(most > 5 && most <= MOST, "{most} commands");
    }
}

#[tokio::test]
async fn an_inspection_names_those_who_wait_for_a_permit() {
    let (_server, store) = server_and_store().await;
    assert!(asks(&store, &permit("n", 1)).await);
    let waiter = patient("n", LockMode::permits(1));
    assert!(!asks(&store, &waiter).await);
    assert_eq!(inspect(&store).await.waiters, [waiter.hold.id.to_string()]);
    store.withdraw(&waiter, false).await.unwrap();
    assert!(inspect(&store).await.waiters.is_empty());
}

#[tokio::test]
async fn permits_go_with_locks_in_one_question() {
    use tower_distributed_lock::store::{SeveralOutcome, Want};
    let (_server, store) = server_and_store().await;
    let attempts = [
        attempt("a", LockMode::Reentrant),
        permit("b", 2),
        permit("c", 1),
        attempt("d", LockMode::Read),
    ];
    let all = store.acquire_several(&attempts, Want::All).await.unwrap();
    assert!(matches!(all, SeveralOutcome::Granted(grants) if grants.len() == 4));
    let again = [permit("b", 2), permit("c", 1)];
    let refused = store.acquire_several(&again, Want::All).await.unwrap();
    assert!(
        matches!(refused, SeveralOutcome::Refused { index: Some(1), .. }),
        "{refused:?}"
    );
    let any = store.acquire_several(&again, Want::Any).await.unwrap();
    assert!(matches!(any, SeveralOutcome::Granted(grants) if grants[0].index == 0));
    let releases: Vec<_> = attempts
        .iter()
        .map(|attempt| tower_distributed_lock::store::Release::new(attempt.hold.clone()))
        .collect();
    for released in store.release(&releases).await.unwrap() {
        assert_eq!(released.status, HoldStatus::Held);
    }
    assert!(asks(&store, &permit("c", 1)).await && asks(&store, &permit("b", 2)).await);
    assert!(!asks(&store, &permit("b", 2)).await);
}
