//! The rights of the Redis user: the documented ones are enough, all of them are needed, and they are checked
//! before the first lock.

use std::error::Error;
use std::time::Duration;
use tower_distributed_lock::LockStoreExt;
use tower_distributed_lock::store::Want;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tower_distributed_lock::audit::Deployment;
use tower_distributed_lock::store::{Fencing, Record, Renewal};
use tower_distributed_lock::{
    AclRules, ListQuery, LockAdmin, LockClient, LockError, LockStore, MissingRights, Replicas,
};

use super::*;
use crate::support::{RedisCluster, RedisSentinels, Replicated, eventually};

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
    let missing = error.source().unwrap().downcast_ref::<MissingRights>();
    missing.map_or(Vec::new(), |missing| missing.rules().to_vec())
}

async fn acquire(store: &RedisStore, attempt: &Attempt) -> Result<(), StoreError> {
    let answer = store.acquire(attempt).await?;
    assert!(matches!(answer, Outcome::Granted { .. }), "{attempt:?}");
    Ok(())
}

async fn refused(store: &RedisStore, attempt: &Attempt) -> Result<(), StoreError> {
    let answer = store.acquire(attempt).await?;
    assert!(matches!(answer, Outcome::Refused { .. }), "{attempt:?}");
    Ok(())
}

/// All operations of a store, on keys that begin with `prefix`.
async fn everything(store: &RedisStore, prefix: &str) -> Result<(), StoreError> {
    exclusive(store, &name(prefix, "exclusive")).await?;
    fair(store, &name(prefix, "fair")).await?;
    read_write(store, &name(prefix, "read-write")).await?;
    permits(store, &name(prefix, "permits")).await?;
    several(store, prefix).await?;
    records(store, prefix).await
}

/// A prefix may contain the begin of a hash tag.
fn name(prefix: &str, rest: &str) -> String {
    let end = if prefix.contains('{') { "}" } else { "" };
    format!("{prefix}{rest}{end}")
}

async fn exclusive(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let holder = fenced(attempt(key, LockMode::Reentrant), Fencing::default());
    one_after_the_other(store, &holder, &patient(key, LockMode::Reentrant)).await
}

/// The waiter gets the hold after the holder, renews it, and is withdrawn.
async fn one_after_the_other(
    store: &RedisStore,
    holder: &Attempt,
    waiter: &Attempt,
) -> Result<(), StoreError> {
    acquire(store, holder).await?;
    refused(store, waiter).await?;
    let mut wakeups = store.subscribe(waiter).await?;
    store.release_one(&holder.hold).await?;
    woken(&mut wakeups).await;
    acquire(store, waiter).await?;
    let renewal = Renewal::new(waiter.hold.clone(), LEASE);
    assert_eq!(store.renew(&[renewal]).await?, [HoldStatus::Held]);
    let holds = [waiter.hold.clone()];
    assert_eq!(store.check(&holds).await?, [HoldStatus::Held]);
    store.withdraw(waiter, true).await
}

async fn fair(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let [holder, first, second, third] = std::array::from_fn(|_| patient(key, LockMode::Fair));
    acquire(store, &holder).await?;
    for waiter in [&first, &second, &third] {
        refused(store, waiter).await?;
    }
    let mut wakeups = store.subscribe(&first).await?;
    store.withdraw(&second, true).await?;
    store.release_one(&holder.hold).await?;
    woken(&mut wakeups).await;
    acquire(store, &first).await?;
    store.release_one(&first.hold).await?;
    acquire(store, &third).await?;
    store.release_one(&third.hold).await.map(drop)
}

async fn read_write(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let [one, two] = [(); 2].map(|()| attempt(key, LockMode::Read));
    let [late, later] = [(); 2].map(|()| patient(key, LockMode::Read));
    let [writer, other] = [(); 2].map(|()| patient(key, LockMode::Write));
    acquire(store, &one).await?;
    acquire(store, &two).await?;
    refused(store, &writer).await?;
    refused(store, &other).await?;
    refused(store, &late).await?;
    let mut wakeups = store.subscribe(&writer).await?;
    store.release_one(&one.hold).await?;
    store.release_one(&two.hold).await?;
    woken(&mut wakeups).await;
    acquire(store, &writer).await?;
    refused(store, &late).await?;
    refused(store, &later).await?;
    store.release_one(&writer.hold).await?;
    acquire(store, &late).await?;
    store.withdraw(&other, true).await?;
    store.withdraw(&later, true).await?;
    store.release_one(&late.hold).await.map(drop)
}

async fn permits(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let holder = attempt(key, LockMode::permits(1));
    one_after_the_other(store, &holder, &patient(key, LockMode::permits(1))).await
}

async fn several(store: &RedisStore, prefix: &str) -> Result<(), StoreError> {
    let attempts = MODES.map(|mode| attempt(name(prefix, mode.as_str()), mode));
    store.acquire_several(&attempts, Want::All).await?;
    for attempt in &attempts {
        store.release_one(&attempt.hold).await?;
    }
    store.acquire_several(&attempts, Want::Any).await?;
    store.release_one(&attempts[0].hold).await.map(drop)
}

async fn records(store: &RedisStore, prefix: &str) -> Result<(), StoreError> {
    let record = Record::new("done", LEASE);
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let work = attempt(name(prefix, mode.as_str()), mode);
        acquire(store, &work).await?;
        store.release_recording(&work.hold, &record).await?;
        assert!(store.record(&work.hold.key).await?.is_some());
    }
    Ok(())
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

#[tokio::test]
async fn a_right_that_is_granted_later_is_noticed() {
    let rules = RedisStore::acl_rules(["k"]);
    let server = server_with(&rules).await;
    without(&server, &rules, "+pexpire").await;
    let store = RedisStore::builder(address(&server))
        .connect_lazy()
        .unwrap();
    let hold = attempt("k", LockMode::Write);
    assert_eq!(missing(&error(&store, &hold).await), ["+pexpire"]);
    without(&server, &rules, "").await;
    eventually("the store works", LIMIT, async || {
        store.acquire(&hold).await
    })
    .await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_while_connected_leaves_no_lock_that_stays_for_ever() {
    for forbidden in ["pexpire", "set", "hset"] {
        let server = server_with("~* &* +@all").await;
        let store = RedisStore::connect(address(&server)).await.unwrap();
        let mut redis = server.connection().await;
        acl(&mut redis, &["SETUSER", "locks", &format!("-{forbidden}")]).await;
        for mode in MODES {
            if forbidden == "set" && mode != LockMode::Read {
                continue;
            }
            let kind = error_kind(&store, &attempt("k", mode)).await;
            assert_eq!(kind, StoreErrorKind::Refused);
            let dump = server.dump().await;
            assert!(dump.values().all(|entry| entry.ttl.is_some()), "{dump:?}");
            assert!(!dump.contains_key("k"));
        }
    }
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

#[tokio::test]
async fn a_deleted_user_is_refused_until_it_is_there_again() {
    let rules = RedisStore::acl_rules(["k"]);
    let server = server_with(&rules).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    let waiter = patient("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    acl(&mut server.connection().await, &["DELUSER", "locks"]).await;
    eventually("the user is refused", LIMIT, async || {
        let error = store.acquire(&waiter).await.err()?;
        (error.kind() == StoreErrorKind::Refused).then_some(())
    })
    .await;
    without(&server, &rules, "").await;
    woken(&mut wakeups).await;
    eventually("the store works", LIMIT, async || {
        store.acquire(&waiter).await
    })
    .await;
}

#[tokio::test]
async fn a_password_that_changes_shows_at_the_next_connection() {
    let rules = RedisStore::acl_rules(["k"]);
    let server = server_with(&rules).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    let mut redis = server.connection().await;
    acl(&mut redis, &["SETUSER", "locks", "resetpass", ">another"]).await;
    let hold = attempt("k", LockMode::Reentrant);
    assert!(asks(&store, &hold).await && releases(&store, &hold).await);
    let kill = redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
        .to_owned();
    kill.exec_async(&mut redis).await.unwrap();
    eventually("the password is refused", LIMIT, async || {
        let error = store.acquire(&hold).await.err()?;
        (error.kind() == StoreErrorKind::Refused).then_some(())
    })
    .await;
    acl(&mut redis, &["SETUSER", "locks", ">secret"]).await;
    eventually("the store works", LIMIT, async || {
        store.acquire(&hold).await
    })
    .await;
}

/// Rules that Redis 6.2 does not know and does not need.
const OF_SHARDS: [&str; 3] = ["+spublish", "+ssubscribe", "+sunsubscribe"];

/// Creates the user on several servers, with the rules that each server knows.
async fn with_user(servers: impl IntoIterator<Item = &RedisServer>, rules: &AclRules) {
    for server in servers {
        let shards = server.knows_shards().await;
        let known = |rule: &String| shards || !OF_SHARDS.contains(&rule.as_str());
        grant(server, rules.iter().filter(known)).await;
    }
}

#[tokio::test]
async fn replicas_that_acknowledge_need_rights_of_their_own() {
    let replicated = Replicated::start(1).await;
    let rules = RedisStore::acl_rules(["k:"]).replicas();
    with_user([replicated.master()], &rules).await;
    let store = RedisStore::builder(address(replicated.master()))
        .replicas(Replicas::All)
        .replica_timeout(LIMIT)
        .connect()
        .await
        .unwrap();
    everything(&store, "k:").await.unwrap();
    assert_eq!(
        refusals(replicated.master()).await,
        Value::Array(Vec::new())
    );
    for rule in ["+role", "+wait"] {
        without(replicated.master(), &rules, rule).await;
        let hold = attempt("k:1", LockMode::Reentrant);
        let error = error(&store, &hold).await;
        assert!(
            matches!(
                error.kind(),
                StoreErrorKind::Refused | StoreErrorKind::Unacknowledged
            ),
            "{rule}: {error:?}"
        );
        store.withdraw(&hold, false).await.unwrap();
    }
}

#[tokio::test]
async fn following_sentinels_needs_one_right_more() {
    let deployment = RedisSentinels::start().await;
    let rules = RedisStore::acl_rules(["k:"]).sentinel();
    with_user(&deployment.replicated.servers, &rules).await;
    let connect = || {
        RedisStore::sentinel(deployment.urls(), RedisSentinels::NAME)
            .servers("redis://locks:secret@any")
            .connect()
    };
    let store = connect().await.unwrap();
    everything(&store, "k:").await.unwrap();
    let master = deployment.replicated.master();
    assert_eq!(refusals(master).await, Value::Array(Vec::new()));
    without(master, &rules, "+role").await;
    let error = connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
}

#[tokio::test]
async fn a_cluster_needs_rights_of_its_own() {
    let cluster = RedisCluster::start().await;
    let rules = RedisStore::acl_rules(["k:"]).cluster();
    with_user(&cluster.nodes, &rules).await;
    let addresses: Vec<_> = cluster.nodes.iter().map(address).collect();
    let store = RedisStore::cluster(addresses).connect().await.unwrap();
    everything(&store, "k:").await.unwrap();
    for node in &cluster.nodes {
        assert_eq!(refusals(node).await, Value::Array(Vec::new()));
    }
    let audit = LockClient::new(store).audit().await.unwrap();
    assert_eq!(audit.deployment, Deployment::Failover);
    assert_eq!(audit.members.len(), cluster.masters().count(), "{audit}");
}
