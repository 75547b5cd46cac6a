//! Connections that the server closes, or does not accept any more.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tower_distributed_lock::{LockAdmin, LockClient, LockError, RedisStore};

use super::{
    MODES, PATIENT, SOON, client, granted, hold_everything, nothing_is_left, outcome,
    take_and_release, told, waits, works_again,
};
use crate::support::{RedisServer, eventually};

async fn tell(redis: &mut MultiplexedConnection, words: &[&str]) -> redis::Value {
    let command = redis::cmd(words[0]).arg(&words[1..]).to_owned();
    let answer = command.query_async(redis).await;
    answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

async fn kill_connections(redis: &mut MultiplexedConnection) -> i64 {
    let words = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    match tell(redis, &words).await {
        redis::Value::Int(killed) => killed,
        other => panic!("{other:?}"),
    }
}

/// The number of connections with a command that the server has not begun.
async fn blocked(server: &RedisServer) -> usize {
    let clients = server.client_list().await;
    let blocked = |flags: &str| flags.contains('b');
    clients.iter().filter(|it| blocked(&it["flags"])).count()
}

/// S5, S9, L6, L7. Questions on a broken connection are asked again, with another hold id if the first question may
/// have had an effect.
#[tokio::test]
async fn commands_killed_with_their_connection_are_sent_again() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let mut redis = server.connection().await;
    let guards = hold_everything(&locks).await;
    // The server delays them, so that the connection ends between question and answer.
    tell(&mut redis, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let asking = MODES.map(|mode| {
        let key = format!("new {}", mode.as_str());
        tokio::spawn(locks.lock(key).mode(mode).wait(PATIENT).acquire())
    });
    let several = [locks.lock_all(["a", "b"]), locks.lock_any(["x", "y"])]
        .map(|asking| tokio::spawn(asking.wait(PATIENT).acquire()));
    let releasing: Vec<_> = guards
        .into_iter()
        .map(|guard| tokio::spawn(guard.release()))
        .collect();
    eventually("commands are on the server", SOON, async || {
        blocked(&server).await == 2
    })
    .await;
    assert!(kill_connections(&mut redis).await >= 2);
    tell(&mut redis, &["CLIENT", "UNPAUSE"]).await;
    for asking in asking.into_iter().chain(several) {
        granted(asking).await.release().await.expect("held");
    }
    for released in releasing {
        outcome(released).await.expect("it was released once");
    }
    works_again(&server, &[&locks]).await;
}

/// L2. The server closes a subscriber that reads too slowly, and the message that the lock is free is lost.
#[tokio::test]
async fn a_subscriber_that_is_cut_off_for_its_backlog_misses_no_wake_up() {
    let server = RedisServer::builder()
        .config("client-output-buffer-limit", "pubsub 64kb 0 0")
        .start()
        .await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    for mode in MODES {
        let guard = holder.lock("n").mode(mode).await.expect("free");
        let waiting = waits(&server, &other, "n", super::rival(mode)).await;
        let channels = server.pubsub_channels().await;
        // A writer that is first behind a reader also listens on Redisson's channel. One connection serves both.
        let channel = channels.keys().next().expect("there is one");
        let cuts = server.log().matches("output buffer limits").count();
        let mut freeing = redis::pipe();
        freeing.atomic();
        // Many messages: Valkey 9 would share the text of one large message with its sender, and not count it.
        for _ in 0..256 {
            freeing.publish(channel, "x".repeat(1 << 12));
        }
        freeing.del("n").publish(channel, "0");
        let freed = freeing.exec_async(&mut server.connection().await).await;
        freed.expect("freed");
        eventually("the server has cut it off", SOON, async || {
            server.log().matches("output buffer limits").count() > cuts
        })
        .await;
        granted(waiting).await.release().await.expect("held");
        let released = guard.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        works_again(&server, &[&holder, &other]).await;
    }
}

/// The connections that a server has.
async fn ids(server: &RedisServer) -> BTreeSet<String> {
    let clients = server.client_list().await.into_iter();
    clients.map(|client| client["id"].clone()).collect()
}

/// L6. The server closes idle connections, and no caller notices.
#[tokio::test]
async fn a_server_that_ends_idle_connections_fails_no_request() {
    let server = RedisServer::builder().config("timeout", "1").start().await;
    let locks = client(server.url()).await;
    for mode in MODES {
        let guard = locks.lock("n").mode(mode).await.expect("free");
        let before = ids(&server).await;
        eventually("the server has ended them", SOON, async || {
            ids(&server).await.is_disjoint(&before)
        })
        .await;
        guard.release().await.expect("held all the time");
        let next = locks.lock("n").mode(mode).wait(Duration::ZERO).await;
        next.expect("at once").release().await.expect("held");
    }
    works_again(&server, &[&locks]).await;
}

async fn is_refused(locks: &LockClient, why: &str) {
    let began = Instant::now();
    eventually("it is refused", SOON, async || {
        let asked = locks.lock("new").wait(PATIENT).await;
        let error = asked.expect_err("no server lets it in");
        assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
        let told = told(&error);
        // The first question may fail with the end of the connection.
        told.contains(why).then_some(()).ok_or(told)
    })
    .await;
    assert!(began.elapsed() < PATIENT / 2, "not after the whole wait");
}

/// L4, L6, S5. A request without the right to ask fails at once; holds remain until they can be released.
#[tokio::test]
async fn a_password_changed_while_connected_refuses_at_once_until_it_is_restored() {
    for password in ["secret", ""] {
        let server = match password {
            "" => RedisServer::start().await,
            some => RedisServer::builder().password(some).start().await,
        };
        let store = RedisStore::connect(server.url())
            .await
            .expect("it is there");
        let (locks, admin) = (LockClient::new(store.clone()), LockAdmin::new(store));
        let mut redis = server.connection().await;
        let guards = hold_everything(&locks).await;
        tell(&mut redis, &["CONFIG", "SET", "requirepass", "another"]).await;
        // A holder keeps its lock.
        let inside = locks.lock("inside").await.expect("free");
        inside.release().await.expect("held");
        assert!(kill_connections(&mut redis).await >= 2);
        let why = match password {
            "" => "Authentication required",
            _ => "invalid username-password pair",
        };
        is_refused(&locks, why).await;
        let mut guards = guards.into_iter();
        for guard in guards.by_ref().take(2) {
            let released = guard.release().await;
            assert!(
                matches!(released, Err(LockError::Unconfirmed(_))),
                "{released:?}"
            );
        }
        tell(&mut redis, &["CONFIG", "SET", "requirepass", password]).await;
        take_and_release(&[&locks]).await;
        for guard in guards {
            // The server may have accepted a connection that the store has not checked yet.
            eventually("the connection of this lock is back", SOON, async || {
                admin.inspect(guard.key().clone()).await
            })
            .await;
            guard.release().await.expect("held all the time");
        }
        // The locks are released, and do not wait for the end of their leases of 30 s.
        nothing_is_left(&server, &[&locks]).await;
    }
}
