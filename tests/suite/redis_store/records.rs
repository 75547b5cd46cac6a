//! Records are written in the same step in which the hold ends.

use std::time::Duration;

use redis::AsyncTypedCommands;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, LockStore, Record};
use tower_distributed_lock::{LockKey, LockMode};

use super::*;
use crate::support::eventually;

const EXCLUDING: [LockMode; 3] = [LockMode::Reentrant, LockMode::Fair, LockMode::Write];

fn record(value: &'static [u8]) -> Record {
    Record::new(value, Duration::from_secs(60))
}

/// Ends a hold with a record.
async fn records(
    store: &RedisStore,
    attempt: &Attempt,
    value: &'static [u8],
) -> Result<HoldStatus, StoreError> {
    let released = store.release(&attempt.hold, Some(&record(value))).await?;
    Ok(released.status)
}

async fn remembered(store: &RedisStore, key: &str) -> Option<Vec<u8>> {
    let record = store.record(&LockKey::new(key)).await.unwrap();
    record.map(|value| value.to_vec())
}

#[tokio::test]
async fn a_record_is_kept_byte_for_byte_under_a_name_of_its_own() {
    let (server, store) = server_and_store().await;
    for mode in EXCLUDING {
        for (key, name) in [
            ("k", "tower_lock_record:{k}"),
            ("a{k}b", "tower_lock_record:a{k}b"),
        ] {
            let holder = attempt(key, mode);
            assert_eq!(remembered(&store, key).await, None);
            assert!(asks(&store, &holder).await);
            let answer = records(&store, &holder, b"\0\xff\r\n").await;
            assert_eq!(answer.unwrap(), HoldStatus::Held);
            assert_eq!(remembered(&store, key).await.unwrap(), b"\0\xff\r\n");
            let dump = server.dump().await;
            let kept: Vec<_> = dump.iter().collect();
            let [(found, entry)] = kept[..] else {
                panic!("{mode:?}: {dump:?}");
            };
            assert_eq!(found, name);
            let ttl = entry.ttl.unwrap();
            assert!(ttl > Duration::from_secs(50) && ttl <= Duration::from_secs(60));
            server.connection().await.flushall().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_hold_that_is_gone_leaves_no_record_and_harms_none() {
    let (server, store) = server_and_store().await;
    for mode in EXCLUDING {
        let (gone, holder) = (attempt("k", mode), attempt("k", mode));
        let answer = records(&store, &gone, b"late");
        assert_eq!(answer.await.unwrap(), HoldStatus::Gone);
        assert!(asks(&store, &holder).await);
        let answer = records(&store, &gone, b"late");
        assert_eq!(answer.await.unwrap(), HoldStatus::Gone);
        assert_eq!(remembered(&store, "k").await, None);

        let answer = records(&store, &holder, b"done");
        assert_eq!(answer.await.unwrap(), HoldStatus::Held);
        let answer = records(&store, &holder, b"again");
        assert_eq!(answer.await.unwrap(), HoldStatus::Gone, "it is ended once");
        assert_eq!(remembered(&store, "k").await.unwrap(), b"done");
        server.connection().await.flushall().await.unwrap();
    }
}

#[tokio::test]
async fn a_later_record_replaces_an_earlier_one_and_its_retention() {
    let (_server, store) = server_and_store().await;
    let holder = attempt("k", LockMode::Reentrant);
    assert!(asks(&store, &holder).await);
    let first = records(&store, &holder, b"first");
    assert_eq!(first.await.unwrap(), HoldStatus::Held);

    let second = Record::new("second", Duration::from_millis(80));
    assert!(asks(&store, &holder).await, "a record is no lock");
    let answer = store.release(&holder.hold, Some(&second)).await;
    assert_eq!(answer.unwrap().status, HoldStatus::Held);
    eventually("the retention ends", Duration::from_secs(10), async || {
        remembered(&store, "k").await.is_none()
    })
    .await;
}

#[tokio::test]
async fn the_release_of_a_recorded_hold_wakes_as_any_release_does() {
    let (_server, store) = server_and_store().await;
    for mode in EXCLUDING {
        let (holder, waiter) = (attempt("k", mode), patient("k", mode));
        assert!(asks(&store, &holder).await);
        assert!(!asks(&store, &waiter).await);
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        let answer = records(&store, &holder, b"done");
        assert_eq!(answer.await.unwrap(), HoldStatus::Held);
        woken(&mut wakeups).await;
        assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
    }
}

#[tokio::test]
async fn a_reader_cannot_record_and_goes_on_reading() {
    let (_server, store) = server_and_store().await;
    let reader = attempt("k", LockMode::Read);
    assert!(asks(&store, &reader).await);
    let answer = records(&store, &reader, b"done");
    assert_eq!(answer.await.unwrap_err().kind(), StoreErrorKind::Refused);
    assert!(holds(&store, &reader).await);
}

#[tokio::test]
async fn when_memory_is_full_a_release_still_records() {
    let (server, store) = server_and_store().await;
    for mode in EXCLUDING {
        let holder = attempt("k", mode);
        assert!(asks(&store, &holder).await);
        configure(&server, "maxmemory", "1").await;
        assert_eq!(
            error_kind(&store, &attempt("other", mode)).await,
            StoreErrorKind::Refused
        );
        let answer = records(&store, &holder, b"done");
        assert_eq!(answer.await.unwrap(), HoldStatus::Held);
        assert_eq!(remembered(&store, "k").await.unwrap(), b"done");
        configure(&server, "maxmemory", "0").await;
        server.connection().await.flushall().await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_record_is_a_conflict() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    redis
        .hset("tower_lock_record:{k}", "field", "value")
        .await
        .unwrap();
    let read = store.record(&LockKey::new("k")).await;
    assert_eq!(read.unwrap_err().kind(), StoreErrorKind::Conflict);
}
