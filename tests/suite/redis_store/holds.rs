//! Holds in every mode: granted, renewed, checked, released, withdrawn.

mod renewals;

use std::time::Duration;

use redis::AsyncTypedCommands;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, LockStore, LockStoreExt, Renewal};

use super::*;
use crate::support::{Dump, eventually};

#[tokio::test]
async fn every_mode_grants_refuses_releases_and_leaves_nothing() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        let (first, second) = (attempt("k", mode), attempt("k", mode));
        assert!(asks(&store, &first).await, "{mode:?}");
        assert!(
            asks(&store, &first).await,
            "{mode:?}: asking twice is asking once"
        );
        assert!(holds(&store, &first).await);
        assert_eq!(asks(&store, &second).await, mode == LockMode::Read);
        store.withdraw(&second, false).await.unwrap();
        assert!(holds(&store, &first).await);
        assert!(!holds(&store, &second).await);
        assert!(releases(&store, &first).await);
        assert!(!releases(&store, &first).await);
        assert!(!holds(&store, &first).await);
        assert_eq!(server.dump().await, Dump::new(), "{mode:?}");
    }
}

#[tokio::test]
async fn a_refusal_says_when_the_lease_ends() {
    let (_server, store) = server_and_store().await;
    for (held, asked) in [
        (LockMode::Reentrant, LockMode::Reentrant),
        (LockMode::Reentrant, LockMode::Fair),
        (LockMode::Fair, LockMode::Fair),
        (LockMode::Read, LockMode::Write),
        (LockMode::Write, LockMode::Read),
        (LockMode::Write, LockMode::Write),
    ] {
        let key = format!("{held:?}{asked:?}");
        let holder = lasting(attempt(key.as_str(), held), Duration::from_secs(10));
        assert!(asks(&store, &holder).await);
        for waiter in [attempt(key.as_str(), asked), patient(key.as_str(), asked)] {
            let left = retry_after(&store, &waiter).await;
            assert!(left > Duration::from_secs(8) && left <= Duration::from_secs(10));
        }
    }
}

#[tokio::test]
async fn a_withdrawn_attempt_is_not_granted_when_it_arrives_late() {
    let (server, store) = server_and_store().await;
    for mode in MODES {
        for ask_before in [false, true] {
            let late = patient("k", mode);
            if ask_before {
                assert!(asks(&store, &late).await);
            }
            store.withdraw(&late, true).await.unwrap();
            assert_eq!(error_kind(&store, &late).await, StoreErrorKind::Refused);
            assert!(!holds(&store, &late).await);
            let mut dump = server.dump().await;
            let busy = dump.remove("tower_lock_busy:{k}").unwrap();
            assert!(busy.ttl.unwrap() > Duration::from_secs(100));
            assert_eq!(dump.len(), 1, "{dump:?}");
            let (name, tombstone) = dump.first_key_value().unwrap();
            let id = late.hold.id;
            let expected = match mode {
                LockMode::Write => format!("tower_lock_void:{{k}}:{id}:write"),
                _ => format!("tower_lock_void:{{k}}:{id}"),
            };
            assert_eq!(*name, expected);
            assert!(tombstone.ttl.unwrap() > Duration::from_secs(100));
            // Other attempts are not affected.
            let other = attempt("k", mode);
            assert!(asks(&store, &other).await);
            assert_eq!(error_kind(&store, &late).await, StoreErrorKind::Refused);
            assert!(releases(&store, &other).await);
            server.connection().await.flushall().await.unwrap();
        }
        let answered = patient("k", mode);
        store.withdraw(&answered, false).await.unwrap();
        assert_eq!(server.dump().await, Dump::new());
    }
}

/// When two keys expire (ms since the epoch), because Redis has PEXPIRETIME only from version 7 on. While the script runs, a millisecond
/// may pass, which makes both too early, and the first at least as much as the second: it is after the second only if that is true.
const EXPIRIES: &str = "local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local second = now + redis.call('PTTL', KEYS[2])
return {now + redis.call('PTTL', KEYS[1]), second}";

/// Otherwise the late copy of an attempt that arrives between these times would not look for it.
#[tokio::test]
async fn a_tombstone_is_announced_for_as_long_as_it_is_there() {
    let (server, store) = server_and_store().await;
    // The time of the server may pass while a script runs, and does so in some of these.
    for n in 0..400 {
        let key = format!("k{n}");
        let busy = format!("tower_lock_busy:{{{key}}}");
        let late = patient(&*key, LockMode::Reentrant);
        store.withdraw(&late, true).await.unwrap();
        let tombstone = format!("tower_lock_void:{{{key}}}:{}", late.hold.id);
        let words = ["EVAL", EXPIRIES, "2", &tombstone, &busy];
        let [until, announces]: [u64; 2] = server.ask(&words).await;
        let announced: u64 = unusual(&server, &busy).await[VOID].parse().unwrap();
        assert!(until <= announced, "{n}: {until} is after {announced}");
        assert!(until <= announces, "{n}: {until} is after {announces}");
    }
}

#[tokio::test]
async fn an_attempt_on_the_other_kind_of_lock_is_a_conflict() {
    let (server, store) = server_and_store().await;
    for held in MODES {
        let holder = attempt("k", held);
        assert!(asks(&store, &holder).await);
        for asked in MODES {
            let asking = patient("k", asked);
            if held.family() == asked.family() {
                store.withdraw(&asking, false).await.unwrap();
                continue;
            }
            let error = error(&store, &asking).await;
            assert_eq!(error.kind(), StoreErrorKind::Conflict, "{held:?} {asked:?}");
            let text = std::error::Error::source(&error).unwrap().to_string();
            assert!(text.contains("read-write"), "{text}");
        }
        assert!(releases(&store, &holder).await);
        assert_eq!(server.dump().await, Dump::new());
    }
}

#[tokio::test]
async fn something_else_under_the_key_is_a_conflict_and_stays_untouched() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    redis.set("text", "x").await.unwrap();
    redis.rpush("list", "x").await.unwrap();
    for key in ["text", "list"] {
        for mode in MODES {
            assert_eq!(
                error_kind(&store, &patient(key, mode)).await,
                StoreErrorKind::Conflict
            );
        }
    }
    // A wait for a lock that never expires would have no end.
    redis.hset("endless", "other:1", 1).await.unwrap();
    let field = |mode: &str| [("mode", mode.to_owned()), ("other:1:write", "1".to_owned())];
    redis
        .hset_multiple("endless write", &field("write"))
        .await
        .unwrap();
    redis
        .hset_multiple("endless read", &field("read"))
        .await
        .unwrap();
    let before = server.dump().await;
    for (key, mode) in [
        ("endless", LockMode::Reentrant),
        ("endless", LockMode::Fair),
        ("endless write", LockMode::Read),
        ("endless write", LockMode::Write),
        ("endless read", LockMode::Write),
    ] {
        assert_eq!(
            error_kind(&store, &patient(key, mode)).await,
            StoreErrorKind::Conflict,
            "{key} {mode:?}"
        );
    }
    assert_eq!(server.dump().await, before);
}

#[tokio::test]
async fn a_full_server_refuses_acquisitions_and_still_releases() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    for mode in MODES {
        let held = attempt("k", mode);
        let other = attempt("k", mode);
        let waiting = patient("k", mode);
        assert!(asks(&store, &held).await);
        if mode == LockMode::Read {
            assert!(asks(&store, &other).await);
        }
        configure(&server, "maxmemory", "1").await;
        let new = attempt("new", mode);
        assert_eq!(error_kind(&store, &new).await, StoreErrorKind::Refused);
        store.withdraw(&new, true).await.unwrap();
        store.withdraw(&waiting, true).await.unwrap();
        assert!(releases(&store, &held).await, "{mode:?}");
        if mode == LockMode::Read {
            assert!(releases(&store, &other).await);
        }
        configure(&server, "maxmemory", "0").await;
        redis.flushall().await.unwrap();
    }
}

#[tokio::test]
async fn a_full_server_refuses_permits_beside_held_ones() {
    let (server, store) = server_and_store().await;
    let mode = LockMode::permits(3);
    let held = attempt("k", mode);
    assert!(asks(&store, &held).await);
    configure(&server, "maxmemory", "1").await;
    for key in ["k", "new"] {
        let new = attempt(key, mode);
        assert_eq!(error_kind(&store, &new).await, StoreErrorKind::Refused);
        store.withdraw(&new, true).await.unwrap();
    }
    assert!(releases(&store, &held).await);
    assert_eq!(
        error_kind(&store, &attempt("k", mode)).await,
        StoreErrorKind::Refused
    );
    configure(&server, "maxmemory", "0").await;
    assert!(asks(&store, &attempt("k", mode)).await);
}

#[tokio::test]
async fn an_attempt_of_the_longest_lease_and_patience_is_no_overflow() {
    let (_server, store) = server_and_store().await;
    for mode in MODES {
        let key = format!("{mode:?}");
        let mut endless = lasting(attempt(key.as_str(), mode), Duration::MAX);
        endless.patience = Some(Duration::MAX);
        assert!(asks(&store, &endless).await);
        let mut other = lasting(patient(key.as_str(), mode), Duration::MAX);
        other.patience = Some(Duration::MAX);
        assert_eq!(asks(&store, &other).await, mode == LockMode::Read);
        assert_eq!(asks(&store, &other).await, mode == LockMode::Read);
        store.withdraw(&other, true).await.unwrap();
        assert!(releases(&store, &endless).await);
    }
}
