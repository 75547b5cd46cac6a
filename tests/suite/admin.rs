//! Administration on every store: lists of keys and records, page by page.

mod failures;
mod permits;
mod processes;

use std::collections::BTreeSet;
use std::time::Duration;

use redis::AsyncTypedCommands;
use serde_json::json;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{
    Capabilities, Feature, HoldStatus, Holder, Inspect, Inspection, ListQuery, LockEntry,
    LockStore, Page, Record, RecordEntry,
};
use tower_distributed_lock::{
    LockAdmin, LockClient, LockError, LockKey, LockMode, MemoryStore, RedisStore,
};
use tower_distributed_lock_quorum::QuorumStore;

use crate::redis_store::attempt;
use crate::support::{LimitedStore, RedisCluster, RedisServer};

/// Every page of a list.
async fn pages<T>(
    query: ListQuery,
    list: impl AsyncFn(&ListQuery) -> Result<Page<T>, LockError>,
) -> Vec<Vec<T>> {
    let (mut query, mut pages) = (query, Vec::new());
    loop {
        let page = list(&query).await.unwrap();
        pages.push(page.entries);
        match page.next {
            Some(next) => query = query.after(next),
            None => return pages,
        }
    }
}

async fn names(admin: &LockAdmin, query: ListQuery) -> Vec<String> {
    let pages = pages(query, async |query| admin.locks(query).await).await;
    let entries = pages.into_iter().flatten();
    entries.map(|entry| entry.key.to_string()).collect()
}

/// Lists the keys with a prefix, in pages of each size.
async fn each_is_listed_once(
    admin: &LockAdmin,
    prefix: &str,
    expected: &BTreeSet<String>,
    limits: [usize; 3],
) {
    for limit in limits {
        let query = ListQuery::new().prefix(prefix).limit(limit);
        let found = names(admin, query).await;
        assert_eq!(found.len(), expected.len(), "each once: {found:?}");
        assert_eq!(&BTreeSet::from_iter(found), expected);
    }
}

/// Runs a case on the memory, on a Redis server, and on a Cluster that other tests use too.
async fn on_every_store(case: impl AsyncFn(LockClient)) {
    case(LockClient::new(MemoryStore::new())).await;
    let server = RedisServer::start().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    case(LockClient::new(store)).await;
    let cluster = RedisCluster::shared().await;
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    case(LockClient::new(store)).await;
}

#[tokio::test]
async fn every_held_key_is_listed_once_with_its_holders() {
    on_every_store(async |locks| {
        let prefix = "lock:admin:held:";
        let admin = locks.admin().unwrap();
        let mut expected = BTreeSet::new();
        let mut guards = Vec::new();
        for n in 0..25 {
            let key = format!("{prefix}{n}");
            let mode = [LockMode::Reentrant, LockMode::Read, LockMode::Write][n % 3];
            guards.push(locks.lock(&key).mode(mode).await.unwrap());
            expected.insert(key);
        }
        guards.push(locks.lock(format!("{prefix}*[{{x}}]")).await.unwrap());
        expected.insert(format!("{prefix}*[{{x}}]"));
        let other = locks.lock("lock:admin:other").await.unwrap();
        let freed = locks.lock(format!("{prefix}freed")).await.unwrap();
        freed.release().await.unwrap();

        each_is_listed_once(&admin, prefix, &expected, [1, 10, 1000]).await;
        let literal = ListQuery::new().prefix(format!("{prefix}*["));
        assert_eq!(names(&admin, literal).await.len(), 1);
        let list = async |query: &ListQuery| admin.locks(query).await;
        let found = pages(ListQuery::new().prefix("lock:admin:other"), list).await;
        let entry = found.concat().remove(0);
        let mut seen = admin.inspect(&entry.key).await.unwrap();
        seen.holders[0].remaining = entry.inspection.holders[0].remaining;
        assert_eq!(entry.inspection, seen);
        assert!(seen.holders[0].id.starts_with(&locks.id().to_string()));
        other.release().await.unwrap();
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert_eq!(
            names(&admin, ListQuery::new().prefix(prefix)).await,
            [""; 0]
        );
    })
    .await;
}

async fn lists_records(store: impl Inspect + Clone) {
    let (prefix, admin) = ("lock:admin:records:", LockAdmin::new(store.clone()));
    let retention = Duration::from_secs(60);
    let leave = async |key: &str, size: usize| {
        let attempt = attempt(key, LockMode::Reentrant);
        store.acquire(&attempt).await.unwrap();
        let record = Record::new(vec![b'x'; size], retention);
        let left = store.release(&attempt.hold, Some(&record)).await;
        assert_eq!(left.unwrap().status, HoldStatus::Held);
    };
    let mut expected = BTreeSet::new();
    for n in 0..12 {
        // One with a hash tag of its own has no braces added.
        let tag = if n % 2 == 0 { "" } else { "{tag}" };
        let key = format!("{prefix}{tag}{n}");
        leave(&key, n).await;
        expected.insert((key, n as u64));
    }
    leave("lock:elsewhere", 0).await;
    let list = async |query: &ListQuery| admin.records(query).await;
    for limit in [1, 5, 1000] {
        let found = pages(ListQuery::new().prefix(prefix).limit(limit), list).await;
        let found = found.concat();
        let lives = |record: &RecordEntry| {
            record.remaining <= retention && record.remaining > retention / 2
        };
        assert!(found.iter().all(lives), "{found:?}");
        let found = found
            .iter()
            .map(|record| (record.key.to_string(), record.size));
        assert_eq!(found.collect::<BTreeSet<_>>(), expected);
    }
    let seven = format!("{prefix}{{tag}}7");
    let value = admin.record(&seven).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"xxxxxxx"[..]));
    assert!(admin.forget_record(&seven).await.unwrap());
    assert!(!admin.forget_record(&seven).await.unwrap());
    assert_eq!(admin.record(&seven).await.unwrap(), None);
    let left = pages(ListQuery::new().prefix(prefix), list).await.concat();
    assert_eq!(left.len(), expected.len() - 1);
    for (key, _) in &expected {
        admin.forget_record(key).await.unwrap();
    }
    assert!(admin.forget_record("lock:elsewhere").await.unwrap());
}

#[tokio::test]
async fn records_are_listed_with_their_size_and_forgotten() {
    lists_records(MemoryStore::new()).await;
    let server = RedisServer::start().await;
    lists_records(RedisStore::connect(server.url()).await.unwrap()).await;
    let cluster = RedisCluster::shared().await;
    lists_records(RedisStore::cluster(cluster.urls()).connect().await.unwrap()).await;
}

#[tokio::test]
async fn a_page_among_many_other_keys_takes_a_bounded_time_and_shows_no_other_data() {
    let server = RedisServer::start().await;
    let mut redis = server.connection().await;
    for n in 0..30_000 {
        let key = format!("lock:data:{n}");
        let mut pipe = redis::pipe();
        pipe.hset(key, "name", "Ada").ignore();
        if n % 3_000 == 0 {
            pipe.set(format!("lock:text:{n}"), "x").ignore();
        }
        pipe.exec_async(&mut redis).await.unwrap();
    }
    let store = RedisStore::connect(server.url()).await.unwrap();
    let locks = LockClient::new(store);
    let admin = locks.admin().unwrap();
    let guard = locks.lock("lock:data").await.unwrap();

    let monitor = server.monitor().await;
    let query = ListQuery::new().prefix("lock:").limit(10);
    let first = admin.locks(&query).await.unwrap();
    let scans = monitor.lines().await.into_iter();
    let scans = scans.filter(|line| line.contains("\"SCAN\"")).count();
    assert!((1..=16).contains(&scans), "{scans}");
    assert!(first.next.is_some(), "a page looks at a part of the keys");
    assert_eq!(names(&admin, query).await, ["lock:data"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn inspections_lists_and_audits_are_serialized() {
    let holder = Holder::new("id:1", LockMode::Write, Duration::from_millis(1500));
    let for_ever = Holder::new("id:2", LockMode::Read, Duration::MAX).count(2);
    let inspection = Inspection::new(vec![holder, for_ever], vec!["id:3".to_owned()]);
    let entry = LockEntry::new(LockKey::new("lock:k"), inspection);
    let page = Page::new(vec![entry], Some("/7".to_owned()));
    assert_eq!(
        serde_json::to_value(page).unwrap(),
        json!({
            "entries": [{
                "key": "lock:k",
                "holders": [
                    { "id": "id:1", "mode": "write", "count": 1, "remaining_ms": 1500 },
                    { "id": "id:2", "mode": "read", "count": 2, "remaining_ms": null },
                ],
                "waiters": ["id:3"],
                "truncated": false,
                "limit": null,
            }],
            "left_out": [],
            "next": "/7",
        })
    );
    let record = RecordEntry::new(LockKey::new("k"), 12, Duration::from_secs(1));
    assert_eq!(
        serde_json::to_value(record).unwrap(),
        json!({ "key": "k", "size": 12, "remaining_ms": 1000 })
    );
    let audit = LockAdmin::new(MemoryStore::new()).audit().await.unwrap();
    let audit = serde_json::to_value(audit).unwrap();
    assert_eq!(audit["deployment"], "the memory of one process");
    assert_eq!(audit["promises"][0]["id"], "S1");
    assert_eq!(audit["promises"][0]["kept"], "yes");
    assert_eq!(audit["members"], json!([]));
    let dead = RedisStore::builder("redis://127.0.0.1:1")
        .connect_lazy()
        .unwrap();
    let quorum = QuorumStore::new([dead.clone(), dead.clone(), dead]).unwrap();
    let audit = serde_json::to_value(quorum.audit().await.unwrap()).unwrap();
    assert_eq!(audit["members"][0]["error"], "the store cannot be reached");
    assert_eq!(audit["warnings"][0]["kind"], "member_silent");
    assert_eq!(audit["warnings"][0]["text"], "store 1 does not answer");
}
