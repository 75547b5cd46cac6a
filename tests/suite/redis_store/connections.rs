//! The connections are shared and bounded, are replaced when they break, and end with the store.

mod faults;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::AsyncTypedCommands;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::redis::{Credentials, RedisStoreBuilder};
use tower_distributed_lock::store::{LockStore, LockStoreExt};

use super::*;
use crate::support::{Ending, Proxy, Replicated, eventually};

const LIMIT: Duration = Duration::from_secs(20);

/// The limit for a call that fails without a question to the server.
const AT_ONCE: Duration = Duration::from_millis(500);

fn reentrant(key: &str) -> Attempt {
    attempt(key, LockMode::Reentrant)
}

async fn recovers(store: &RedisStore) {
    eventually("the store recovers", LIMIT, async || {
        let hold = reentrant("probe");
        store.acquire(&hold).await?;
        store.release(&hold.hold, None).await
    })
    .await;
}

async fn connections(server: &RedisServer) -> usize {
    server.client_list().await.len()
}

/// Waits for this number: the server may still list a connection that was closed while the store connected.
async fn until_connections(server: &RedisServer, expected: usize) {
    eventually("the server lists the connections", LIMIT, async || {
        let listed = server.client_list().await;
        (listed.len() == expected).then_some(()).ok_or(listed)
    })
    .await;
}

#[tokio::test]
async fn many_commands_share_two_connections_and_none_is_checked_for_each() {
    let (server, store) = server_and_store().await;
    until_connections(&server, 2).await;
    let known = reentrant("known");
    assert!(asks(&store, &known).await && releases(&store, &known).await);
    let monitor = server.monitor().await;
    let pairs = (0..64).map(async |n| {
        let hold = reentrant(&format!("k{n}"));
        assert!(asks(&store, &hold).await && releases(&store, &hold).await);
    });
    futures_util::future::join_all(pairs).await;
    let lines = monitor.lines().await;
    let sent = |line: &&String| !line.contains(" lua]");
    let commands: Vec<_> = lines.iter().filter(sent).collect();
    assert_eq!(commands.len(), 128);
    assert!(
        commands.iter().all(|line| line.contains("\"EVALSHA\"")),
        "{commands:#?}"
    );
    assert_eq!(connections(&server).await, 2);
    drop(store);
    eventually("the connections are closed", LIMIT, async || {
        connections(&server).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_script_that_the_server_forgot_is_sent_again_in_full() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    for mode in MODES {
        let hold = attempt("k", mode);
        for _ in 0..2 {
            let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
            flush.exec_async(&mut redis).await.unwrap();
            assert!(asks(&store, &hold).await);
            assert!(holds(&store, &hold).await);
        }
        let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
        flush.exec_async(&mut redis).await.unwrap();
        assert!(releases(&store, &hold).await);
    }
}

/// After a failover, all processes find out at the same time.
#[tokio::test]
async fn calls_that_find_a_script_forgotten_send_its_text_once_on_each_connection() {
    let (server, store) = server_and_store().await;
    let holds: Vec<_> = (0..64).map(|n| reentrant(&format!("k{n}"))).collect();
    let monitor = server.monitor().await;
    for _ in 0..3 {
        let () = server.ask(&["SCRIPT", "FLUSH"]).await;
        let asking = holds.iter().map(|hold| asks(&store, hold));
        let granted = futures_util::future::join_all(asking).await;
        assert!(granted.into_iter().all(|granted| granted));
        let () = server.ask(&["SCRIPT", "FLUSH"]).await;
        let releasing = holds.iter().map(|hold| releases(&store, hold));
        let released = futures_util::future::join_all(releasing).await;
        assert!(released.into_iter().all(|released| released));
    }
    let lines = monitor.lines().await;
    let texts = lines.iter().filter(|line| line.contains("\"EVAL\""));
    // Two scripts, and two connections.
    let texts = texts.count();
    assert!(texts <= 3 * 2 * 2, "{texts}");
}

#[tokio::test]
async fn connecting_fails_fast_and_says_why() {
    let mut server = RedisServer::builder().password("secret").start().await;
    assert!(RedisStore::connect(server.url()).await.is_ok());
    let port = server.port();
    for url in [
        format!("redis://:wrong@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
        "not an address".to_owned(),
    ] {
        let error = RedisStore::connect(url.as_str()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{url}: {error:?}");
    }
    server.kill9();
    let began = Instant::now();
    let error = RedisStore::connect(server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(began.elapsed() < Duration::from_secs(3));
}

/// A password is rotated, and a token expires.
#[tokio::test]
async fn each_connection_has_the_credentials_of_its_time() {
    let server = RedisServer::builder().password("first").start().await;
    let current = Arc::new(Mutex::new("first"));
    let password = current.clone();
    let store = RedisStore::builder(format!("redis://127.0.0.1:{}", server.port()))
        .credentials(move || {
            let password = *password.lock().unwrap();
            async move { Ok(Credentials::password(password)) }
        })
        .connect()
        .await
        .unwrap();
    let mut redis = server.connection().await;
    for password in ["second", "third"] {
        let set = redis::cmd("CONFIG")
            .arg(&["SET", "requirepass", password])
            .to_owned();
        set.exec_async(&mut redis).await.unwrap();
        let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
        let kill = redis::cmd("CLIENT").arg(&kill).to_owned();
        kill.exec_async(&mut redis).await.unwrap();
        eventually("the old password is refused", LIMIT, async || {
            let error = store.acquire(&reentrant("k")).await.err()?;
            (error.kind() == StoreErrorKind::Refused).then_some(())
        })
        .await;
        *current.lock().unwrap() = password;
        recovers(&store).await;
    }
    let shown = format!("{:?}", Credentials::new("locks", "secret"));
    assert!(
        shown.contains("locks") && !shown.contains("secret"),
        "{shown}"
    );
}

/// Without them no other connection can be opened: those that are open stay.
#[tokio::test]
async fn a_server_that_stalls_while_there_are_no_credentials_is_not_given_up() {
    let mut server = RedisServer::builder().password("secret").start().await;
    let known = Arc::new(AtomicBool::new(true));
    let are_known = known.clone();
    let store = RedisStore::builder(format!("redis://127.0.0.1:{}", server.port()))
        .credentials(move || {
            let known = are_known.load(Ordering::SeqCst);
            let found = known.then(|| Credentials::password("secret"));
            async move { found.ok_or_else(|| "they cannot be fetched".into()) }
        })
        .connect()
        .await
        .unwrap();
    known.store(false, Ordering::SeqCst);
    server.pause();
    // Until then a command and its probe have waited long enough for another connection to be opened.
    let stall = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.resume();
    };
    let hold = reentrant("k");
    let (asked, ()) = tokio::join!(store.acquire(&hold), stall);
    asked.expect("it goes on where it stalled");
    assert!(releases(&store, &hold).await);
}

#[cfg(not(feature = "redis-tls"))]
#[tokio::test]
async fn an_encrypted_address_names_the_feature_that_it_needs() {
    let error = RedisStore::connect("rediss://127.0.0.1").await.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("`redis-tls`"), "{text}");
}

#[tokio::test]
async fn a_store_may_start_before_its_server() {
    let mut server = RedisServer::start().await;
    server.stop().await;
    let store = RedisStore::builder(server.url()).connect_lazy().unwrap();
    assert_eq!(
        error_kind(&store, &reentrant("k")).await,
        StoreErrorKind::Unreachable
    );
    server.restart().await;
    recovers(&store).await;
}

#[tokio::test]
async fn unix_sockets_and_configurations_work() {
    let server = RedisServer::start().await;
    let url = server.url();
    let config = deadpool_redis::Config::from_url(url.as_str());
    for builder in [
        RedisStore::builder(server.unix_url()),
        RedisStore::from_config(config),
        RedisStore::builder(format!("{url}/?protocol=resp3")),
    ] {
        let store = builder.connect().await.unwrap();
        until_connections(&server, 2).await;
        let waiter = attempt("k", LockMode::Reentrant);
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
        woken(&mut wakeups).await;
        drop((store, wakeups));
        eventually("all are closed", LIMIT, async || {
            connections(&server).await == 0
        })
        .await;
    }
}

#[tokio::test]
async fn time_limits_may_be_endless() {
    let deployment = Replicated::start(1).await;
    let url = deployment.master().url();
    let endless = |builder: RedisStoreBuilder| {
        let builder = builder.response_timeout(Duration::from_secs(60));
        let builder = builder.connect_timeout(Duration::MAX);
        builder.replica_timeout(Duration::MAX)
    };
    let mut config = deadpool_redis::Config::from_url(url.as_str());
    config.pool = Some(deadpool_redis::PoolConfig {
        timeouts: deadpool_redis::Timeouts {
            create: Some(Duration::MAX),
            ..deadpool_redis::Timeouts::default()
        },
        ..deadpool_redis::PoolConfig::default()
    });
    for builder in [
        endless(RedisStore::builder(url.as_str())),
        endless(RedisStore::builder(url.as_str())).replicas(1),
        RedisStore::from_config(config),
    ] {
        let store = builder.connect().await.unwrap();
        let hold = reentrant("k");
        let mut wakeups = store.subscribe(&hold).await.unwrap();
        assert!(asks(&store, &hold).await && holds(&store, &hold).await);
        assert!(releases(&store, &hold).await);
        woken(&mut wakeups).await;
    }
}

#[test]
fn a_store_outlives_the_runtime_that_made_it() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (server, store) = first.block_on(server_and_store());
    let waiter = attempt("k", LockMode::Reentrant);
    let old = first.block_on(store.subscribe(&waiter)).unwrap();
    drop(first);
    let second = runtime();
    second.block_on(async {
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
        woken(&mut wakeups).await;
    });
    drop((old, store, server));
}

#[tokio::test]
async fn no_task_outlives_the_store() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut server = RedisServer::start().await;
    for dead in [false, true] {
        let store = RedisStore::connect(server.url()).await.unwrap();
        let clone = store.clone();
        let wakeups = store
            .subscribe(&patient("k", LockMode::Write))
            .await
            .unwrap();
        if dead {
            server.kill9();
            assert!(store.acquire(&reentrant("k")).await.is_err());
        } else {
            assert!(asks(&store, &reentrant("k")).await);
        }
        drop(store);
        assert!(metrics.num_alive_tasks() > before);
        drop(clone);
        eventually("all tasks have ended", LIMIT, async || {
            metrics.num_alive_tasks() == before
        })
        .await;
        drop(wakeups);
    }
}
