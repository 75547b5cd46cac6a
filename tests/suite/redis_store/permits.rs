//! Permits in Redis: their data for Redisson's `RPermitExpirableSemaphore`, and their costs.

mod limits;
mod line;

use std::collections::BTreeSet;

use futures_util::StreamExt;
use redis::AsyncTypedCommands;
use redis::aio::{MultiplexedConnection, PubSub};
use tower_distributed_lock::LockAdmin;
use tower_distributed_lock::store::{Inspection, Renewal};

use super::bounded::{CROWD, MOST, costliest};
use super::*;
use crate::support::{Entry, Stored};

const DAY: Duration = Duration::from_secs(86_400);

/// Redisson's score of a permit without a lease.
const NEVER: u64 = 922_337_203_685_477;

fn permit(name: &str, limit: u32) -> Attempt {
    attempt(name, LockMode::permits(limit))
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
    for (name, held, channel, limit) in [
        (
            "n",
            "{n}:timeout",
            "redisson_sc:{n}",
            "tower_lock_limit:{n}",
        ),
        (
            "a{n}b",
            "a{n}b:timeout",
            "redisson_sc:a{n}b",
            "tower_lock_limit:a{n}b",
        ),
    ] {
        let (server, store) = server_and_store().await;
        let (one, other) = (permit(name, 3), permit(name, 3));
        let before = now_ms(&mut redis_of(&server).await).await;
        assert!(asks(&store, &one).await && asks(&store, &other).await);
        assert!(asks(&store, &one).await, "twice is once");
        let after = now_ms(&mut redis_of(&server).await).await;
        let dump = server.dump().await;
        assert_eq!(dump.len(), 3, "{dump:?}");
        assert_eq!(dump[limit].stored, Stored::String("3".into()));
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
        for key in [name, held, limit] {
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
        let left = server.dump_without_turns().await;
        assert_eq!(left.len(), 2, "{left:?}");
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
    let lapsing = [(); 2].map(|()| lasting(permit("n", 3), Duration::from_millis(500)));
    for attempt in &lapsing {
        assert!(asks(&store, attempt).await);
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
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

/// The application has put a number of its own under the name while a permit is held.
#[tokio::test]
async fn a_release_does_not_count_in_a_number_of_the_application() {
    let (server, store) = server_and_store().await;
    let mut redis = redis_of(&server).await;
    let sequence = "1234567890123456789";
    for is_unusual in [false, true] {
        let held = permit("n", 1);
        assert!(asks(&store, &held).await);
        let waiter = patient("n", LockMode::permits(1));
        if is_unusual {
            assert!(!asks(&store, &waiter).await);
        }
        redis.set("n", sequence).await.unwrap();
        assert!(releases(&store, &held).await);
        assert_eq!(free(&server).await, sequence);
        store.withdraw(&waiter, false).await.unwrap();
        redis.del("n").await.unwrap();
    }
}
