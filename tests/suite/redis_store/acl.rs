//! The rights of the Redis user: the documented ones are enough, all of them are needed, and they are checked
//! before the first lock.

mod changes;
mod deployments;
mod operations;

use std::error::Error;
use std::time::Duration;
use tower_distributed_lock::store::{LockStoreExt, Want};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tower_distributed_lock::audit::Deployment;
use tower_distributed_lock::store::redis::AclRules;
use tower_distributed_lock::store::{Fencing, ListQuery, LockStore, Record, Renewal};
use tower_distributed_lock::{LockAdmin, LockClient, LockError};

use super::*;
use crate::support::{RedisCluster, RedisSentinels, Replicated, eventually};
use operations::everything;

const LIMIT: Duration = Duration::from_secs(30);

/// A server where the default user has no rights, and the user `locks` has these rules.
async fn server_with(rules: impl ToString) -> RedisServer {
    let user = format!("locks on >secret {}", rules.to_string());
    let builder = RedisServer::builder()
        .password("root")
        .config("user", &user);
    builder.start().await
}

fn address(server: &RedisServer) -> String {
    format!("redis://locks:secret@127.0.0.1:{}", server.port())
}

async fn acl(redis: &mut MultiplexedConnection, words: &[&str]) -> Value {
    let command = redis::cmd("ACL").arg(words).to_owned();
    command.query_async(redis).await.unwrap()
}

/// The refusals of the server.
async fn refusals(server: &RedisServer) -> Value {
    acl(&mut server.connection().await, &["LOG"]).await
}

fn missing(error: &StoreError) -> Vec<String> {
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
    let text = error.source().unwrap().to_string();
    let missing = text.strip_prefix("the Redis user lacks rights: grant it ");
    missing.map_or(Vec::new(), |missing| {
        missing.split(' ').map(str::to_owned).collect()
    })
}

/// Prefixes of names that Redisson puts into braces, and of names that have their own.
const PREFIXES: [&str; 2] = ["k:", "k:{"];

#[tokio::test]
async fn the_documented_rights_are_enough_and_nothing_is_ever_refused() {
    for prefix in PREFIXES {
        let rules = RedisStore::acl_rules([prefix]);
        let server = server_with(&rules).await;
        // Removes all other users.
        let mut redis = server.connection().await;
        acl(&mut redis, &["SETUSER", "default", "off"]).await;
        let store = RedisStore::connect(address(&server)).await.unwrap();
        everything(&store, prefix).await.unwrap();
        acl(&mut redis, &["SETUSER", "default", "on"]).await;
        assert_eq!(refusals(&server).await, Value::Array(Vec::new()));
    }
}

#[tokio::test]
async fn locks_of_others_are_out_of_reach() {
    let server = server_with(RedisStore::acl_rules(["k:"])).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    for mode in MODES {
        let error = error(&store, &attempt("other", mode)).await;
        assert!(missing(&error).is_empty(), "{error:?}");
        let remedy = error.source().unwrap();
        assert!(remedy.to_string().contains("acl_rules"), "{remedy}");
        assert!(remedy.source().unwrap().to_string().contains("NoPerm"));
        let waiter = patient("other", mode);
        let error = store.subscribe(&waiter).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
    }
    assert!(server.dump().await.is_empty());
}

#[tokio::test]
async fn several_prefixes_and_all_keys_are_granted() {
    for (prefixes, key) in [
        (&["a:", "b:"][..], "a:1"),
        (&["a:", "b:"], "b:1"),
        (&["a b*[c]\\?"], "a b*[c]\\?1"),
        (&[""], "anything"),
    ] {
        let server = server_with(RedisStore::acl_rules(prefixes.iter().copied())).await;
        let store = RedisStore::connect(address(&server)).await.unwrap();
        for mode in MODES {
            let key = format!("{key}{}", mode.as_str());
            let hold = attempt(key.as_str(), mode);
            assert!(asks(&store, &hold).await);
            let wakeups = store.subscribe(&patient(key, mode)).await;
            wakeups.unwrap();
            assert!(releases(&store, &hold).await);
        }
    }
}

/// Removes one rule from a connected user.
async fn without(server: &RedisServer, rules: &AclRules, rule: &str) {
    grant(server, rules.iter().filter(|other| other != rule)).await;
}

async fn grant(server: &RedisServer, rules: impl Iterator<Item = String>) {
    let rules: Vec<_> = rules.collect();
    let mut words = vec!["SETUSER", "locks", "reset", "on", ">secret"];
    words.extend(rules.iter().map(String::as_str));
    acl(&mut server.connection().await, &words).await;
    let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
    let mut redis = server.connection().await;
    flush.exec_async(&mut redis).await.unwrap();
}

/// The effect of a missing rule: an operation fails, connecting fails, or something is left in the server.
async fn harm(server: &RedisServer, store: &RedisStore, prefix: &str) -> Option<String> {
    if let Err(error) = everything(store, prefix).await {
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
        return Some("an operation fails".to_owned());
    }
    if let Err(error) = RedisStore::connect(address(server)).await {
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
        return Some("no user can connect".to_owned());
    }
    let left = !server.pubsub_channels().await.is_empty();
    let logged = refusals(server).await != Value::Array(Vec::new());
    (left || logged).then(|| "a subscription is left, or a refusal in the log".to_owned())
}

#[tokio::test]
async fn each_right_is_needed() {
    for prefix in PREFIXES {
        let rules = RedisStore::acl_rules([prefix]);
        let server = server_with(&rules).await;
        for (n, rule) in rules.iter().enumerate().skip(1) {
            let mut redis = server.connection().await;
            without(&server, &rules, "").await;
            acl(&mut redis, &["LOG", "RESET"]).await;
            let store = RedisStore::connect(address(&server)).await.unwrap();
            without(&server, &rules, &rule).await;
            let harm = harm(&server, &store, &format!("{prefix}{n}")).await;
            assert!(harm.is_some(), "{rule} is not needed");
        }
    }
}

#[tokio::test]
async fn a_user_who_lacks_a_right_takes_no_lock() {
    let rules = RedisStore::acl_rules([""]);
    let server = server_with(&rules).await;
    let unchecked = ["+eval", "+evalsha", "+ping", "+subscribe", "+unsubscribe"];
    for rule in rules.iter().filter(|rule| rule.starts_with('+')) {
        if unchecked.contains(&&*rule) {
            continue;
        }
        without(&server, &rules, &rule).await;
        let refused = RedisStore::connect(address(&server)).await.unwrap_err();
        assert_eq!(missing(&refused), [rule.as_str()]);
        let lazy = RedisStore::builder(address(&server)).connect_lazy();
        let lazy = lazy.unwrap();
        for mode in MODES {
            let error = error(&lazy, &attempt("k", mode)).await;
            assert_eq!(missing(&error), [rule.as_str()]);
        }
        assert!(server.dump().await.is_empty());
    }
}

/// Redis 7 gives a new user no channel by default. Waiters would get no messages.
#[tokio::test]
async fn a_user_without_the_channels_of_locks_takes_no_lock() {
    for (channels, expected) in [
        (
            "resetchannels",
            &[
                "&redisson_lock__channel:*",
                "&redisson_rwlock:*",
                "&redisson_sc:*",
                "&tower_lock_enter:*",
                "&tower_lock_turn:*",
            ][..],
        ),
        (
            "resetchannels &redisson_lock__channel:* &redisson_sc:*",
            &[
                "&redisson_rwlock:*",
                "&tower_lock_enter:*",
                "&tower_lock_turn:*",
            ],
        ),
    ] {
        let server = server_with(format!("~* +@all {channels}")).await;
        let refused = RedisStore::connect(address(&server)).await.unwrap_err();
        assert_eq!(missing(&refused), expected);
        let lazy = RedisStore::builder(address(&server)).connect_lazy();
        let lazy = lazy.unwrap();
        let error = error(&lazy, &attempt("k", LockMode::Write)).await;
        assert_eq!(missing(&error), expected);
        assert!(server.dump().await.is_empty());
    }
    let ours = "&tower_lock_enter:* &tower_lock_turn:*";
    let theirs = "&redisson_lock__channel:* &redisson_rwlock:* &redisson_sc:*";
    let server = server_with(format!("~* +@all {theirs} {ours}")).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    everything(&store, "k").await.unwrap();
}

/// Outside of a Cluster, sharded channels are never used.
#[tokio::test]
async fn a_user_who_may_publish_on_other_channels_only_takes_no_lock() {
    let server = server_with("~* &* +@all -publish").await;
    let refused = RedisStore::connect(address(&server)).await.unwrap_err();
    assert_eq!(missing(&refused), ["+publish"]);
}

#[tokio::test]
async fn administration_needs_rights_of_its_own() {
    let rules = RedisStore::acl_rules(["k:"]);
    let server = server_with(&rules).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    let admin = LockAdmin::new(store.clone());
    assert!(asks(&store, &attempt("k:1", LockMode::Write)).await);
    let LockError::Unavailable(error) = admin.inspect("k:1").await.unwrap_err() else {
        panic!("another error");
    };
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let listed = admin.locks(&ListQuery::new()).await;
    assert!(
        matches!(listed, Err(LockError::Unavailable(error)) if error.kind() == StoreErrorKind::Refused)
    );
    without(&server, &rules.admin(), "").await;
    let listed = admin.locks(&ListQuery::new().prefix("k:")).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    let records = admin.records(&ListQuery::new().prefix("k:")).await.unwrap();
    assert_eq!(records.entries.len(), 0);
    assert!(!admin.forget_record("k:1").await.unwrap());
    assert!(admin.inspect("k:1").await.unwrap().is_held());
    assert!(admin.force_unlock("k:1").await.unwrap());
}
