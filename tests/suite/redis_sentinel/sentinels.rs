//! The answers of sentinels, and silent sentinels.

use std::error::Error;
use std::time::Duration;

use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, LockStore, LockStoreExt};
use tower_distributed_lock::{LockMode, RedisStore};

use super::{store, until_connections, works};
use crate::redis_store::{MODES, asks, attempt, patient, releases, the_line_is_woken, woken};
use crate::support::{RedisSentinels, RedisServer, eventually};

/// Until then a command and its probe have waited long enough for another connection to be opened, and the command may still be
/// answered.
const STALL: Duration = Duration::from_secs(2);

#[tokio::test]
async fn two_stores_that_know_only_the_sentinels_exclude_and_wake_each_other() {
    let sentinels = RedisSentinels::start().await;
    let (a, b) = (store(&sentinels).await, store(&sentinels).await);
    for mode in MODES {
        let (mine, yours) = (attempt("k", mode), patient("k", LockMode::Write));
        let yours = match mode {
            LockMode::Reentrant | LockMode::Fair => patient("k", LockMode::Reentrant),
            LockMode::Read | LockMode::Write => yours,
            LockMode::Permit(_) => patient("k", mode),
        };
        assert!(asks(&a, &mine).await && !asks(&b, &yours).await);
        let mut wakeups = b.subscribe(&yours).await.unwrap();
        assert!(releases(&a, &mine).await);
        if mode != LockMode::Fair {
            woken(&mut wakeups).await;
        }
        assert!(asks(&b, &yours).await && releases(&b, &yours).await);
        the_line_is_woken(&a, &b, "k", mode).await;
    }
    let servers = &sentinels.replicated.servers;
    // 2 + 2 for commands, 1 for wake-ups.
    until_connections(&servers[0], 5).await;
    for replica in &servers[1..] {
        until_connections(replica, 0).await;
    }
}

#[tokio::test]
async fn dead_sentinels_stop_no_connected_store_and_come_back() {
    let mut sentinels = RedisSentinels::start().await;
    let before = store(&sentinels).await;
    let listener = attempt("listened", LockMode::Reentrant);
    let mut wakeups = before.subscribe(&listener).await.unwrap();
    sentinels.sentinels[0].kill9();
    let two_left = store(&sentinels).await;
    sentinels.sentinels[1].kill9();
    let one_left = store(&sentinels).await;
    sentinels.sentinels[2].kill9();
    // Longer than one round of the watching task.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    for store in [&before, &two_left, &one_left] {
        let hold = patient("k", LockMode::Reentrant);
        assert!(asks(store, &hold).await && releases(store, &hold).await);
    }
    // Listeners continue to listen.
    let hold = attempt("listened", LockMode::Reentrant);
    assert!(asks(&one_left, &hold).await && releases(&one_left, &hold).await);
    woken(&mut wakeups).await;
    let builder = || RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME);
    let error = builder().connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error:?}");
    let lazy = builder().connect_lazy().unwrap();
    sentinels.sentinels[1].restart().await;
    works(&lazy, "k").await;
}

/// None of them says which server is the master, so no other connection can be opened: those that are open stay.
#[tokio::test]
async fn a_master_that_stalls_while_no_sentinel_answers_is_not_given_up() {
    let mut sentinels = RedisSentinels::start().await;
    let store = store(&sentinels).await;
    works(&store, "k").await;
    for sentinel in &mut sentinels.sentinels {
        sentinel.kill9();
    }
    let master = &mut sentinels.replicated.servers[0];
    master.pause();
    let [hold, other] = ["k", "other"].map(|key| attempt(key, LockMode::Reentrant));
    let asking = tokio::time::timeout(STALL, store.acquire(&hold)).await;
    assert!(asking.is_err(), "it stalls: {asking:?}");
    let (during, ()) = tokio::join!(store.acquire(&other), async { master.resume() });
    during.expect("it goes on where it stalled");
    assert!(releases(&store, &hold).await, "it was granted meanwhile");
}

#[tokio::test]
async fn a_sentinel_that_is_silent_does_not_hold_up_the_others() {
    let mut sentinels = RedisSentinels::start().await;
    sentinels.sentinels[0].pause();
    let began = std::time::Instant::now();
    let store = store(&sentinels).await;
    works(&store, "k").await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    sentinels.sentinels[0].resume();
}

#[tokio::test]
async fn a_wrong_name_a_wrong_password_and_a_server_that_is_no_sentinel_are_distinguished() {
    let sentinels = RedisSentinels::start().await;
    let server = RedisServer::start().await;
    let connecting = [
        RedisStore::sentinel(sentinels.urls(), "loks").connect(),
        RedisStore::sentinel([server.url()], RedisSentinels::NAME).connect(),
        RedisStore::sentinel(Vec::<String>::new(), RedisSentinels::NAME).connect(),
        RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME)
            .servers("redis://:wrong@any")
            .connect(),
        RedisStore::builder(server.url())
            .servers("redis://any/1")
            .connect(),
    ];
    let hints = [
        "loks",
        "unknown command",
        "at least one sentinel",
        "password",
        "`servers`",
    ];
    for (connecting, hint) in connecting.into_iter().zip(hints) {
        let error = connecting.await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
        let text = error.source().unwrap().to_string();
        assert!(text.to_lowercase().contains(hint), "{text}");
    }
}

#[tokio::test]
async fn a_master_that_does_not_know_hello_is_refused_with_that_reason() {
    let sentinels = RedisSentinels::start().await;
    let renamed = RedisServer::builder().config("rename-command", "HELLO \"\"");
    let server = renamed.start().await;
    let port = server.port().to_string();
    let words = ["SENTINEL", "MONITOR", "renamed", "127.0.0.1", &port, "2"];
    for sentinel in &sentinels.sentinels {
        sentinel.ask::<()>(&words).await;
    }
    let connecting = RedisStore::sentinel(sentinels.urls(), "renamed").connect();
    let error = connecting.await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
    let text = error.source().unwrap().to_string();
    assert!(text.contains("`rename-command HELLO`"), "{text}");
}

#[tokio::test]
async fn the_database_of_the_servers_is_the_one_that_was_asked_for() {
    let sentinels = RedisSentinels::start().await;
    let store = RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME)
        .servers("redis://any/3")
        .connect()
        .await
        .unwrap();
    let hold = attempt("k", LockMode::Reentrant);
    assert!(asks(&store, &hold).await);
    let master = sentinels.replicated.master();
    assert_eq!(master.dump().await.len(), 0, "database 0");
    let keyspace: String = master.ask(&["INFO", "keyspace"]).await;
    assert!(keyspace.contains("db3:keys=1"), "{keyspace}");
}

#[tokio::test]
async fn no_task_outlives_the_store() {
    let sentinels = RedisSentinels::start().await;
    let metrics = tokio::runtime::Handle::current().metrics();
    // The test's own connections end a little after they are dropped.
    let idle = async || metrics.num_alive_tasks() == 0;
    eventually("nothing runs", super::LIMIT, idle).await;
    let store = store(&sentinels).await;
    let hold = patient("k", LockMode::Reentrant);
    let wakeups = store.subscribe(&hold).await.unwrap();
    assert!(asks(&store, &hold).await);
    assert_eq!(store.check(&[hold.hold]).await.unwrap(), [HoldStatus::Held]);
    assert!(metrics.num_alive_tasks() > 0);
    drop(store);
    // A listener keeps nothing alive.
    eventually("all tasks have ended", super::LIMIT, idle).await;
    drop(wakeups);
}

/// A thousand processes would open a thousand connections a second.
#[tokio::test]
async fn a_store_keeps_one_connection_to_each_sentinel() {
    let sentinels = RedisSentinels::start().await;
    let store = store(&sentinels).await;
    works(&store, "k").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let accepted = async || {
        let mut all = 0;
        for sentinel in &sentinels.sentinels {
            let info: String = sentinel.ask(&["INFO", "stats"]).await;
            let count = info
                .lines()
                .find_map(|line| line.strip_prefix("total_connections_received:"));
            all += count.unwrap().parse::<u64>().unwrap();
        }
        all
    };
    let before = accepted().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The observer's own questions: one to each sentinel.
    let opened = accepted().await - before - 3;
    assert!(opened <= 1, "{opened} connections in five seconds");
}
