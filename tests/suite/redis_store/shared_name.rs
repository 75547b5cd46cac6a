//! A lock and data of the application under one name: the data is kept, and the request fails.

use std::collections::BTreeMap;

use redis::AsyncTypedCommands;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::store::{Inspect, Record, Renewal};

use super::*;
use crate::support::{Dump, Stored};

/// The fields of an application's hash; one of them is a number that is not the count of a hold.
const DATA: [(&str, &str); 3] = [("status", "paid"), ("sku:42", "3"), ("total", "30000000")];

async fn write_data(server: &RedisServer) {
    let mut redis = server.connection().await;
    redis.hset_multiple("k", &DATA).await.unwrap();
}

/// Asserts that the data is the only key, and does not expire.
async fn only_the_data_is_left(server: &RedisServer, what: &str) {
    let dump = server.dump_without_turns().await;
    let data: BTreeMap<_, _> = DATA.map(|(f, v)| (f.to_owned(), v.to_owned())).into();
    assert_eq!(dump["k"].stored, Stored::Hash(data), "{what}");
    assert_eq!(dump["k"].ttl, None, "{what}");
    let kept = ["tower_lock_void:", "tower_lock_busy:"];
    let ours = |key: &&String| *key != "k" && !kept.iter().any(|kept| key.starts_with(kept));
    assert_eq!(dump.keys().find(ours), None, "{what}");
}

async fn flush(server: &RedisServer) {
    server.connection().await.flushall().await.unwrap();
}

#[tokio::test]
async fn a_release_leaves_the_applications_data_and_reports_the_conflict() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        let hold = attempt("k", mode);
        assert!(asks(&store, &hold).await);
        let mut wakeups = store.subscribe(&attempt("k", LockMode::Reentrant)).await;
        let wakeups = wakeups.as_mut().unwrap();
        write_data(&server).await;
        let renewal = Renewal::new(hold.hold.clone(), LEASE);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [HoldStatus::Held]);
        let error = store.release(&hold.hold, None).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Conflict, "{mode:?}");
        only_the_data_is_left(&server, &format!("{mode:?}")).await;
        if mode.family() == LockFamily::Exclusive {
            woken(wakeups).await;
        }
        assert!(!releases(&store, &hold).await, "the hold has ended");
        for other in MODES {
            let kind = error_kind(&store, &attempt("k", other)).await;
            assert_eq!(kind, StoreErrorKind::Conflict, "{mode:?} {other:?}");
        }
        only_the_data_is_left(&server, &format!("{mode:?}")).await;
        flush(&server).await;
    }
}

#[tokio::test]
async fn a_withdrawal_leaves_the_applications_data() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        for unanswered in [false, true] {
            let hold = attempt("k", mode);
            assert!(asks(&store, &hold).await);
            write_data(&server).await;
            store.withdraw(&hold, unanswered).await.unwrap();
            only_the_data_is_left(&server, &format!("{mode:?}")).await;
            flush(&server).await;
        }
    }
}

#[tokio::test]
async fn a_release_with_a_record_leaves_the_applications_data() {
    let (server, store) = server_and_store().await;
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let hold = attempt("k", mode);
        assert!(asks(&store, &hold).await);
        write_data(&server).await;
        let record = Record::new("done", LEASE);
        let error = store.release(&hold.hold, Some(&record)).await;
        assert_eq!(error.unwrap_err().kind(), StoreErrorKind::Conflict);
        let record = store.record(&hold.hold.key).await.unwrap();
        assert!(record.is_some(), "the work was done under the hold");
        server
            .connection()
            .await
            .del("tower_lock_record:{k}")
            .await
            .unwrap();
        only_the_data_is_left(&server, &format!("{mode:?}")).await;
        flush(&server).await;
    }
}

#[tokio::test]
async fn data_beside_holds_of_others_goes_with_none_of_them() {
    let (server, store) = server_and_store().await;
    let readers = [(); 3].map(|()| attempt("k", LockMode::Read));
    for reader in &readers {
        assert!(asks(&store, reader).await);
    }
    write_data(&server).await;
    for reader in &readers[..2] {
        let _ = store.release(&reader.hold, None).await;
        assert!(holds(&store, &readers[2]).await);
    }
    store.release(&readers[2].hold, None).await.unwrap_err();
    only_the_data_is_left(&server, "the last reader").await;
}

/// The data of an application may have a field `mode`.
#[tokio::test]
async fn a_hash_of_the_application_is_never_taken_for_a_lock() {
    let (server, store) = server_and_store().await;
    for fields in [
        &[("mode", "standard"), ("status", "paid")][..],
        &[("mode", "read"), ("status", "paid")],
        &[("mode", "write"), ("visits", "30000000")],
        &[("status", "paid")],
        &[("00000000-0000-0000-0000-000000000000:1", "1"), ("x", "y")],
    ] {
        for expires in [false, true] {
            let mut redis = server.connection().await;
            redis.hset_multiple("k", fields).await.unwrap();
            if expires && fields[0] != ("mode", "standard") {
                break;
            }
            if expires {
                redis.pexpire("k", 60_000).await.unwrap();
            }
            let before = server.dump().await["k"].stored.clone();
            for mode in MODES {
                for asking in [attempt("k", mode), patient("k", mode)] {
                    let answer = store.acquire(&asking).await;
                    // An exclusive lock that expires looks the same.
                    let error = answer.unwrap_err();
                    assert_eq!(
                        error.kind(),
                        StoreErrorKind::Conflict,
                        "{fields:?} {mode:?}"
                    );
                    assert!(!releases(&store, &asking).await);
                    store.withdraw(&asking, false).await.unwrap();
                }
            }
            let key = LockKey::new("k");
            let seen = store.inspect(&key).await.unwrap_err();
            assert_eq!(seen.kind(), StoreErrorKind::Conflict, "{fields:?}");
            let forced = store.force_unlock(&key).await.unwrap_err();
            assert_eq!(forced.kind(), StoreErrorKind::Conflict, "{fields:?}");
            let dump = server.dump().await;
            assert_eq!(dump["k"].stored, before);
            assert_eq!(dump["k"].ttl.is_some(), expires);
            assert_eq!(dump.len(), 1, "{dump:?}");
        }
        flush(&server).await;
    }
    assert_eq!(server.dump().await, Dump::new());
}

/// A refused writer reads a hash with many fields. It changes only fields of holds.
#[tokio::test]
async fn a_large_hash_of_the_application_is_left_as_it_is() {
    let (server, store) = server_and_store().await;
    let fill = "redis.call('HSET', 'k', 'mode', 'read') \
                for i = 1, 10000 do redis.call('HSET', 'k', 'field ' .. i, i) end \
                redis.call('PEXPIRE', 'k', 60000)";
    let () = server.ask(&["EVAL", fill, "0"]).await;
    let before = server.dump().await["k"].stored.clone();
    for asking in [attempt("k", LockMode::Write), patient("k", LockMode::Write)] {
        assert_eq!(error_kind(&store, &asking).await, StoreErrorKind::Conflict);
        store.withdraw(&asking, true).await.unwrap();
    }
    let dump = server.dump().await;
    assert_eq!(dump["k"].stored, before);
    assert!(dump["k"].ttl.is_some());
}

/// A lock of Redisson and one of ours of another kind under one name: neither ends the other.
#[tokio::test]
async fn a_hold_of_another_kind_beside_ours_survives_our_release() {
    let (server, store) = server_and_store().await;
    let java = "0b5a3c1e-0000-4000-8000-000000000666:42";
    for mode in [LockMode::Reentrant, LockMode::Fair] {
        let hold = attempt("k", mode);
        assert!(asks(&store, &hold).await);
        let mut redis = server.connection().await;
        // A read lock of Redisson does not see an exclusive lock.
        redis
            .hset_multiple("k", &[("mode", "read"), (java, "1")])
            .await
            .unwrap();
        let timeout = format!("{{k}}:{java}:rwlock_timeout:1");
        redis.pset_ex(timeout, "1", 20_000).await.unwrap();
        let error = store.release(&hold.hold, None).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Conflict);
        let dump = server.dump().await;
        assert!(dump["k"].ttl.is_some(), "it is a lock, and expires");
        assert!(redis.hexists("k", java).await.unwrap());
        flush(&server).await;
    }
}
