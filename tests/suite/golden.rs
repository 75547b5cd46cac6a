//! The bytes in Redis: the keys, fields, expiries, channels and messages that Redisson and this crate share.

mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use tower_distributed_lock::store::{LockStore, WAITER_LIVENESS};
use tower_distributed_lock::{LockMode, RedisStore};

use crate::redis_store::*;
use crate::support::{Dump, RedisServer, Stored, eventually};

/// A lock name, and its form in Redisson's names of other keys.
const NAMES: [(&str, &str); 3] = [
    ("n", "{n}"),
    ("a{n}b", "a{n}b"),
    ("order:42/é", "{order:42/é}"),
];

/// The content of the database. Expiries are checked against `lease` and left out.
async fn content(server: &RedisServer, lease: Duration) -> BTreeMap<String, Stored> {
    let dump = server.dump().await;
    for (key, entry) in &dump {
        let ttl = entry.ttl.unwrap();
        assert!(
            ttl <= lease && ttl > lease - Duration::from_secs(5),
            "{key}"
        );
    }
    dump.into_iter()
        .map(|(key, entry)| (key, entry.stored))
        .collect()
}

fn hash(fields: &[(String, &str)]) -> Stored {
    Stored::Hash(
        fields
            .iter()
            .map(|(field, value)| (field.clone(), (*value).to_owned()))
            .collect(),
    )
}

fn text(text: &str) -> Stored {
    Stored::String(text.into())
}

#[tokio::test]
async fn exclusive_holds_are_redissons() {
    let (server, store) = server_and_store().await;
    for (name, _) in NAMES {
        for mode in [LockMode::Reentrant, LockMode::Fair] {
            let hold = attempt(name, mode);
            assert!(asks(&store, &hold).await && asks(&store, &hold).await);
            let id = hold.hold.id.to_string();
            let (uuid, n) = id.split_once(':').unwrap();
            assert_eq!(uuid.len(), 36);
            assert!(n.parse::<u64>().is_ok());
            let expected = [(name.to_owned(), hash(&[(id, "1")]))];
            assert_eq!(content(&server, LEASE).await, expected.into());
            assert!(releases(&store, &hold).await);
            assert_eq!(server.dump().await, Dump::new());
        }
    }
}

#[tokio::test]
async fn read_and_write_holds_are_redissons() {
    let (server, store) = server_and_store().await;
    for (name, tag) in NAMES {
        let (one, other) = (attempt(name, LockMode::Read), attempt(name, LockMode::Read));
        assert!(asks(&store, &one).await && asks(&store, &other).await);
        let (a, b) = (one.hold.id.to_string(), other.hold.id.to_string());
        let mode = ("mode".to_owned(), "read");
        let expected = [
            (
                name.to_owned(),
                hash(&[mode, (a.clone(), "1"), (b.clone(), "1")]),
            ),
            (format!("{tag}:{a}:rwlock_timeout:1"), text("1")),
            (format!("{tag}:{b}:rwlock_timeout:1"), text("1")),
        ];
        assert_eq!(content(&server, LEASE).await, expected.into());
        assert!(releases(&store, &one).await && releases(&store, &other).await);
        assert_eq!(server.dump().await, Dump::new());

        let write = attempt(name, LockMode::Write);
        assert!(asks(&store, &write).await);
        let mode = ("mode".to_owned(), "write");
        let fields = [mode, (format!("{}:write", write.hold.id), "1")];
        let expected = [(name.to_owned(), hash(&fields))];
        assert_eq!(content(&server, LEASE).await, expected.into());
        assert!(releases(&store, &write).await);
        assert_eq!(server.dump().await, Dump::new());
    }
}

#[tokio::test]
async fn a_fair_queue_is_redissons_with_near_scores() {
    let (server, store) = server_and_store().await;
    for (name, tag) in NAMES {
        let holder = attempt(name, LockMode::Fair);
        assert!(asks(&store, &holder).await);
        let mut waiters = [(); 3].map(|()| attempt(name, LockMode::Fair));
        let before = now(&server).await;
        for waiter in &mut waiters {
            waiter.patience = Some(Duration::MAX);
            assert!(!asks(&store, waiter).await);
        }
        let after = now(&server).await;
        let ids = waiters.each_ref().map(|waiter| waiter.hold.id.to_string());
        let dump = server.dump().await;
        let queue = &dump[&format!("redisson_lock_queue:{tag}")];
        assert_eq!(queue.stored, Stored::List(ids.to_vec()));
        assert!(queue.ttl.is_some(), "all of them are ours");
        let timeouts = &dump[&format!("redisson_lock_timeout:{tag}")];
        assert!(timeouts.ttl.is_some());
        let Stored::SortedSet(scores) = &timeouts.stored else {
            panic!("{timeouts:?}");
        };
        // Entries of one millisecond are in the order of their names.
        let scored: BTreeSet<_> = scores.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!(scored, ids.into());
        for (n, (_, score)) in scores.iter().enumerate() {
            // As long as it counts as alive, and two seconds.
            let (least, most) = (before + 5_000.0, after + 5_000.0);
            assert!(least <= *score && *score <= most, "{n}: {score}");
        }
        let ours = format!("tower_lock_alive:{tag}");
        assert!(dump[&ours].ttl.is_some());
        assert!(dump[&format!("tower_lock_busy:{tag}")].ttl.is_some());
        assert_eq!(dump.len(), 5, "{dump:?}");
        for waiter in &waiters {
            store.withdraw(waiter, false).await.unwrap();
        }
        assert!(releases(&store, &holder).await);
        assert_eq!(server.dump().await, Dump::new());
    }
}

#[tokio::test]
async fn an_uncontended_pair_costs_no_more_calls_than_it_must() {
    let (server, store) = server_and_store().await;
    for (mode, acquire, release) in [
        (
            LockMode::Reentrant,
            &["EVALSHA", "EXISTS", "HSET", "PEXPIRE"][..],
            &["EVALSHA", "HDEL", "EXISTS", "PUBLISH"][..],
        ),
        (
            LockMode::Fair,
            &["EVALSHA", "EXISTS", "HSET", "PEXPIRE"],
            &["EVALSHA", "HDEL", "EXISTS", "PUBLISH"],
        ),
        (
            LockMode::Read,
            &["EVALSHA", "EXISTS", "SET", "HSET", "PEXPIRE"],
            &[
                "EVALSHA", "DEL", "HDEL", "EXISTS", "HLEN", "HDEL", "PUBLISH",
            ],
        ),
        (
            LockMode::Write,
            &["EVALSHA", "EXISTS", "HSET", "PEXPIRE"],
            &["EVALSHA", "HDEL", "EXISTS", "HLEN", "HDEL", "PUBLISH"],
        ),
        (
            LockMode::permits(3),
            &[
                "EVALSHA", "EXISTS", "GET", "GET", "PTTL", "SET", "SET", "TIME", "ZADD", "PEXPIRE",
            ],
            &[
                "EVALSHA", "EXISTS", "GET", "ZSCORE", "ZREM", "SET", "PUBLISH", "TIME",
            ],
        ),
    ] {
        let warm = attempt("k", mode);
        assert!(asks(&store, &warm).await && releases(&store, &warm).await);
        let hold = attempt("k", mode);
        let monitor = server.monitor().await;
        assert!(asks(&store, &hold).await);
        let asked = verbs(&monitor.lines().await);
        assert_eq!(asked, acquire, "{mode:?}");
        assert!(releases(&store, &hold).await);
        let both = verbs(&monitor.lines().await);
        assert_eq!(both[asked.len()..], *release, "{mode:?}");
    }
}

/// The commands of MONITOR lines.
fn verbs(lines: &[String]) -> Vec<String> {
    let verb = |line: &String| line.split('"').nth(1).unwrap_or_default().to_owned();
    lines.iter().map(verb).collect()
}

async fn now(server: &RedisServer) -> f64 {
    let mut redis = server.connection().await;
    let (s, us): (u64, u64) = redis::cmd("TIME").query_async(&mut redis).await.unwrap();
    (s * 1000 + us / 1000) as f64
}
