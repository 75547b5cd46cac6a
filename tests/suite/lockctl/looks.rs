//! `lockctl ls`, `show`, `watch` and `break`, as text and as JSON.

mod breaks;
mod lists;

use std::process::Stdio;

use serde_json::{Value, json};
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use super::{Done, SOON, client, done, lockctl, until_written};
use crate::support::{Process, RedisServer, eventually};

async fn looked(redis: &RedisServer, arguments: &[&str]) -> Done {
    done(lockctl(&redis.url(), arguments)).await
}

fn parsed(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[tokio::test]
async fn a_holder_of_every_kind_is_shown_with_its_lease() {
    let redis = RedisServer::start().await;
    let locks = client(&redis).await;
    for (mode, shown) in [
        (LockMode::Reentrant, "reentrant"),
        // The store does not keep the mode.
        (LockMode::Fair, "reentrant"),
        (LockMode::Read, "read"),
        (LockMode::Write, "write"),
        // Last: Redis keeps the name for permits for a day.
        (LockMode::permits(2), "permit"),
    ] {
        let guard = locks.lock("k").mode(mode).await.expect("it is free");
        let table = looked(&redis, &["show", "k"]).await;
        assert_eq!((table.code, &*table.err), (0, ""), "{mode:?}");
        assert!(table.out.contains("k is held"), "{table:?}");
        assert!(table.out.contains(&locks.id().to_string()), "{table:?}");
        assert!(table.out.contains(shown), "{table:?}");
        assert!(table.out.contains("this crate"), "{table:?}");

        let found = parsed(&looked(&redis, &["show", "k", "--json"]).await);
        assert_eq!(found["key"], "k");
        assert_eq!(found["truncated"], false);
        assert_eq!(found["waiters"], json!([]));
        let holder = &found["holders"][0];
        assert_eq!(
            (&holder["mode"], &holder["count"]),
            (&json!(shown), &json!(1))
        );
        let left = holder["remaining_ms"].as_u64().expect("a number");
        assert!((1..=30_000).contains(&left), "{found}");
        guard.release().await.expect("it was held");
    }
    let free = looked(&redis, &["show", "k"]).await;
    assert_eq!((free.code, &*free.out), (1, "k is free\n"), "{free:?}");
    let free = looked(&redis, &["show", "k", "--json"]).await;
    assert_eq!((free.code, &parsed(&free)["holders"]), (1, &json!([])));
}

/// A request of `client` that waits in the queue of `k`, when `before` wait already.
async fn queued(
    redis: &RedisServer,
    client: &LockClient,
    before: usize,
) -> tokio::task::JoinHandle<()> {
    let request = client.lock("k").mode(LockMode::Fair);
    let waiting = tokio::spawn(async move {
        let guard = request.await.expect("its turn comes");
        guard.release().await.expect("it was held");
    });
    eventually("it waits", SOON, async || {
        redis
            .ask::<usize>(&["LLEN", "redisson_lock_queue:{k}"])
            .await
            > before
    })
    .await;
    waiting
}

#[tokio::test]
async fn waiters_are_shown_in_their_order() {
    let redis = RedisServer::start().await;
    let holder = client(&redis).await;
    let guard = holder
        .lock("k")
        .mode(LockMode::Fair)
        .await
        .expect("it is free");
    let clients = [client(&redis).await, client(&redis).await];
    let mut waiting = Vec::new();
    for (before, client) in clients.iter().enumerate() {
        waiting.push(queued(&redis, client, before).await);
    }
    let found = parsed(&looked(&redis, &["show", "k", "--json"]).await);
    let waiters = found["waiters"].as_array().expect("a list");
    assert_eq!(waiters.len(), 2, "{found}");
    let table = looked(&redis, &["show", "k"]).await.out;
    let (_, listed) = table.split_once("waiting").expect("some wait");
    let mut places = Vec::new();
    for (waiter, client) in waiters.iter().zip(&clients) {
        let id = client.id().to_string();
        assert!(waiter.as_str().expect("text").starts_with(&id), "{found}");
        places.push(listed.find(&id).expect("it is listed"));
    }
    assert!(places.is_sorted(), "{table}");
    guard.release().await.expect("it was held");
    for waiting in waiting {
        waiting.await.expect("it is served");
    }
}

/// Of so many readers, each look shows others.
#[tokio::test]
async fn a_lock_with_more_holders_than_are_shown_is_said_to_have_more() {
    let redis = RedisServer::start().await;
    let store = RedisStore::connect(redis.url()).await.expect("it runs");
    let mut guards = Vec::new();
    for _ in 0..150 {
        let locks = LockClient::new(store.clone());
        let permit = locks.lock("permits").permits(1000).await;
        guards.push(permit.expect("one is free"));
        let read = locks.lock("k").mode(LockMode::Read).await;
        guards.push(read.expect("readers share"));
    }
    let shown = looked(&redis, &["show", "permits"]).await;
    let count = "is held, at least 100 of 1000 permits";
    assert!(shown.out.contains(count), "{shown:?}");
    let listed = looked(&redis, &["ls"]).await.out;
    assert_eq!(listed.matches(" and at least ").count(), 2, "{listed}");
    let broken = looked(&redis, &["break", "k", "--yes"]).await;
    assert!(broken.out.contains(" and others"), "{broken:?}");
}

#[tokio::test]
async fn a_failure_advises_what_can_be_typed() {
    let redis = RedisServer::start().await;
    redis.user("few", &RedisStore::acl_rules(["k:"])).await;
    let () = redis.ask(&["HSET", "k:hash", "field", "1"]).await;
    for (arguments, expected) in [
        (
            &["show", "order:42"][..],
            &["`lockctl acl`", "`--admin`"][..],
        ),
        (&["run", "--key", "k:hash", "true"], &["`lockctl break`"]),
    ] {
        let mut command = lockctl(&redis.url(), arguments);
        command
            .env("REDIS_USER", "few")
            .env("REDIS_PASSWORD", "secret");
        let done = done(command).await;
        assert_eq!(done.code, 84, "{done:?}");
        for expected in expected {
            assert!(done.err.contains(expected), "{done:?}");
        }
        for rust in ["::", "()", "LockAdmin"] {
            assert!(!done.err.contains(rust), "{done:?}");
        }
    }
}

#[tokio::test]
async fn names_cannot_act_on_the_terminal() {
    let redis = RedisServer::start().await;
    let locks = client(&redis).await;
    let hostile = "k\u{1b}[2J\r\n\u{202e}x";
    let guard = locks.lock(hostile).await.expect("it is free");
    for arguments in [&["show", hostile][..], &["ls"]] {
        let done = looked(&redis, arguments).await;
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.out.contains("k\\u{1b}[2J\\r\\n\\u{202e}x"), "{done:?}");
        assert!(!done.out.contains('\u{1b}'), "{done:?}");
    }
    let json = parsed(&looked(&redis, &["ls", "--json"]).await);
    assert_eq!(json["locks"][0]["key"], hostile);
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn what_is_no_lock_is_not_shown_as_one() {
    let redis = RedisServer::start().await;
    let () = redis.ask(&["SET", "data", "x"]).await;
    for arguments in [
        &["show", "data"][..],
        &["break", "data", "--yes"],
        &["watch", "data"],
    ] {
        let done = looked(&redis, arguments).await;
        assert_eq!((done.code, &*done.out), (84, ""), "{done:?}");
    }
    assert_eq!(redis.ask::<String>(&["GET", "data"]).await, "x");
    let listed = parsed(&looked(&redis, &["ls", "--json"]).await);
    assert_eq!(
        listed,
        json!({"locks": [], "truncated": false, "left_out": []})
    );
}

#[tokio::test]
async fn a_silent_store_is_unavailable_for_every_command() {
    let mut redis = RedisServer::start().await;
    redis.kill9();
    for arguments in [
        &["show", "k"][..],
        &["ls"],
        &["watch", "k"],
        &["break", "k"],
        &["audit"],
    ] {
        let done = looked(&redis, arguments).await;
        assert_eq!((done.code, &*done.out), (81, ""), "{done:?}");
    }
}

#[tokio::test]
async fn a_watch_sees_what_changes() {
    let redis = RedisServer::start().await;
    let mut tables = lockctl(&redis.url(), &["watch", "k", "--interval", "20ms"]);
    let mut json = lockctl(
        &redis.url(),
        &["watch", "k", "--interval", "20ms", "--json"],
    );
    let mut tables = Process::spawn(&mut tables).expect("lockctl is built");
    let mut json = Process::spawn(&mut json).expect("lockctl is built");
    until_written(&mut tables, "free\n").await;
    until_written(&mut json, "\"holders\":[]").await;
    let locks = client(&redis).await;
    let guard = locks
        .lock("k")
        .mode(LockMode::Fair)
        .await
        .expect("it is free");
    let held = format!("held by {}:1 (reentrant)\n", locks.id());
    until_written(&mut tables, &held).await;
    let other = client(&redis).await;
    let waiting = queued(&redis, &other, 0).await;
    until_written(
        &mut tables,
        &format!("(reentrant); waiting: {}", other.id()),
    )
    .await;
    until_written(&mut json, &format!("\"waiters\":[\"{}", other.id())).await;
    guard.release().await.expect("it was held");
    waiting.await.expect("it is served");
    eventually("it is free again", SOON, async || {
        tables.output().ends_with("free\n")
    })
    .await;
    let output = tables.output();
    assert_eq!(output.matches(&held).count(), 1, "only changes: {output}");
    for line in json.output().lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["key"], "k");
        assert!(
            line["at"].as_str().is_some_and(|at| at.ends_with('Z')),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_watch_outlives_an_outage_and_ends_with_its_reader() {
    let mut redis = RedisServer::start().await;
    let mut command = lockctl(&redis.url(), &["watch", "k", "--interval", "20ms"]);
    let mut watch = Process::spawn(&mut command).expect("lockctl is built");
    until_written(&mut watch, "free\n").await;
    redis.kill9();
    until_written(&mut watch, "unavailable").await;
    redis.restart().await;
    let locks = client(&redis).await;
    let guard = locks.lock("k").await.expect("it is free");
    until_written(&mut watch, "held by").await;

    let mut command = lockctl(&redis.url(), &["watch", "k", "--interval", "20ms"]);
    let (mut unread, _, output) = Process::spawn_piped(&mut command).expect("lockctl is built");
    drop(output);
    guard.release().await.expect("it was held");
    assert_eq!(unread.end().await.code(), Some(0));
}

#[tokio::test]
async fn an_audit_is_a_table_or_json() {
    let redis = RedisServer::start().await;
    let table = looked(&redis, &["audit"]).await;
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.contains("S5 confirmed exclusion"), "{table:?}");
    let json = looked(&redis, &["audit", "--json"]).await;
    assert_eq!(json.code, 0, "{json:?}");
    assert!(parsed(&json)["warnings"].is_array(), "{json:?}");
}

#[tokio::test]
async fn a_reader_that_has_gone_is_no_failure() {
    let redis = RedisServer::start().await;
    let mut command = lockctl(&redis.url(), &["ls"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdout(Stdio::from(writer));
    drop(reader);
    let status = command.status().expect("it runs");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn output_that_cannot_be_written_is_a_failure() {
    let redis = RedisServer::start().await;
    for arguments in [&["ls"][..], &["show", "k"], &["watch", "k"]] {
        let full = std::fs::File::create("/dev/full").expect("Linux has it");
        let mut command = lockctl(&redis.url(), arguments);
        command.stdout(Stdio::from(full));
        let status = command.status().expect("it runs");
        assert_eq!(status.code(), Some(74), "{arguments:?}");
    }
}
