//! Connections that break, fall silent, or lead to a server that cannot serve.

use super::*;

/// A store behind the proxy that soon calls a silent server silent.
fn hasty(proxy: &Proxy) -> RedisStoreBuilder {
    RedisStore::builder(proxy.url()).response_timeout(Duration::from_millis(200))
}

#[tokio::test]
async fn connections_killed_while_idle_are_replaced_without_an_error() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    for _ in 0..5 {
        let kill = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .to_owned();
        kill.exec_async(&mut redis).await.unwrap();
        // Long enough for the client to see the end of its connections.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for n in 0..8 {
            let hold = reentrant(&format!("k{n}"));
            assert!(asks(&store, &hold).await && releases(&store, &hold).await);
        }
    }
    until_connections(&server, 2).await;
}

#[tokio::test]
async fn a_connection_cut_with_a_command_on_its_way_leaves_it_unanswered() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::connect(proxy.url()).await.unwrap();
    let lost = patient("k", LockMode::Reentrant);
    // So that the server knows the script.
    assert!(asks(&store, &lost).await && releases(&store, &lost).await);
    proxy.replies.hold();
    let (answer, ()) = tokio::join!(store.acquire(&lost), async {
        proxy.replies.until_caught().await;
        proxy.cut(Ending::Reset).await;
        proxy.replies.release();
    });
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unanswered);
    assert!(server.dump().await.contains_key("k"), "it had its effect");
    eventually("it is taken back", LIMIT, async || {
        store.withdraw(&lost, true).await
    })
    .await;
    assert!(asks(&store, &reentrant("k")).await);
}

#[tokio::test]
async fn a_command_without_an_answer_is_unanswered_and_its_late_copy_void() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::builder(proxy.url())
        .response_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap();
    let direct = RedisStore::connect(server.url()).await.unwrap();
    for mode in MODES {
        let late = patient("k", mode);
        proxy.requests.hold();
        assert_eq!(error_kind(&store, &late).await, StoreErrorKind::Unanswered);
        direct.withdraw(&late, true).await.unwrap();
        proxy.requests.release();
        recovers(&store).await;
        let mut dump = server.dump().await;
        dump.retain(|key, _| !key.starts_with("tower_lock_void:"));
        dump.retain(|key, _| !key.starts_with("tower_lock_busy:"));
        assert!(dump.is_empty(), "{mode:?}: {dump:?}");
        server.connection().await.flushall().await.unwrap();
    }
}

#[tokio::test]
async fn while_redis_is_down_calls_fail_at_once_and_when_it_is_back_they_do_not() {
    let (mut server, store) = server_and_store().await;
    for _ in 0..2 {
        server.kill9();
        eventually("it is noticed", LIMIT, async || {
            store.acquire(&reentrant("k")).await.is_err()
        })
        .await;
        for mode in MODES {
            let hold = attempt("k", mode);
            let began = Instant::now();
            assert_eq!(error_kind(&store, &hold).await, StoreErrorKind::Unreachable);
            assert_eq!(
                store.release(&hold.hold, None).await.unwrap_err().kind(),
                StoreErrorKind::Unreachable
            );
            assert!(store.withdraw(&hold, true).await.is_err());
            assert!(store.check(&[hold.hold]).await.is_err());
            assert!(began.elapsed() < AT_ONCE);
        }
        server.restart().await;
        recovers(&store).await;
    }
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_without_a_request() {
    let (mut server, store) = server_and_store().await;
    server.kill9();
    for n in 0..8 {
        assert!(store.acquire(&reentrant(&format!("k{n}"))).await.is_err());
    }
    server.restart().await;
    eventually("the connections are back", LIMIT, async || {
        connections(&server).await == 2
    })
    .await;
    // They are used after a check.
    for n in 0..8 {
        let hold = reentrant(&format!("k{n}"));
        eventually("the store works", LIMIT, async || {
            store.acquire(&hold).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_connection_that_died_silently_is_replaced() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = hasty(&proxy).connect_timeout(Duration::from_millis(500));
    let store = store.connect().await.unwrap();
    assert_eq!(proxy.accepted(), 2);
    proxy.replies.hold();
    assert_eq!(
        error_kind(&store, &reentrant("k")).await,
        StoreErrorKind::Unanswered
    );
    eventually("the store is known to be down", LIMIT, async || {
        let began = Instant::now();
        let error = store.acquire(&reentrant("k")).await.err()?;
        (error.kind() == StoreErrorKind::Unreachable && began.elapsed() < AT_ONCE).then_some(())
    })
    .await;
    proxy.replies.release();
    recovers(&store).await;
}

/// The pauses between failed attempts to connect are long where a server is down for long. They begin anew each time.
#[tokio::test]
async fn a_connection_whose_probe_fails_is_soon_replaced_each_time() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = hasty(&proxy).connect().await.unwrap();
    let mut down = Duration::ZERO;
    for _ in 0..10 {
        recovers(&store).await;
        let hold = reentrant("k");
        proxy.replies.hold();
        proxy.refuse().await;
        eventually("the probe has failed", LIMIT, async || {
            error_kind(&store, &hold).await == StoreErrorKind::Unreachable
        })
        .await;
        proxy.replies.release();
        proxy.accept().await;
        let began = Instant::now();
        eventually("it is connected", LIMIT, async || {
            store.acquire(&hold).await
        })
        .await;
        down += began.elapsed();
        store.release(&hold.hold, None).await.unwrap();
    }
    // If they doubled from one time to the next, they would be four seconds.
    assert!(down < Duration::from_secs(2), "{down:?}");
}

#[tokio::test]
async fn a_slow_answer_does_not_end_the_connection() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = hasty(&proxy).connect().await.unwrap();
    proxy.requests.delay(Duration::from_millis(250));
    assert_eq!(
        error_kind(&store, &reentrant("k")).await,
        StoreErrorKind::Unanswered
    );
    proxy.requests.delay(Duration::ZERO);
    recovers(&store).await;
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_server_that_cannot_serve_just_now_is_transient() {
    let (server, store) = server_and_store().await;
    let mut redis = server.connection().await;
    let replicate = redis::cmd("REPLICAOF").arg(&["127.0.0.1", "1"]).to_owned();
    replicate.exec_async(&mut redis).await.unwrap();
    for mode in MODES {
        assert_eq!(
            error_kind(&store, &attempt("k", mode)).await,
            StoreErrorKind::Transient
        );
    }
    let promote = redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).to_owned();
    promote.exec_async(&mut redis).await.unwrap();
    assert!(asks(&store, &reentrant("k")).await);

    configure(&server, "lua-time-limit", "50").await;
    let busy = async {
        let mut other = server.connection().await;
        let script = "local t = redis.call('TIME')[1]; while redis.call('TIME')[1] - t < 2 do end";
        let eval = redis::cmd("EVAL").arg(script).arg(0).to_owned();
        let _ = eval.exec_async(&mut other).await;
    };
    let asking = async {
        eventually("the server is busy", LIMIT, async || {
            let mut redis = redis.clone();
            redis::cmd("PING").exec_async(&mut redis).await.is_err()
        })
        .await;
        error_kind(&store, &reentrant("k")).await
    };
    assert_eq!(tokio::join!(busy, asking).1, StoreErrorKind::Transient);
}

#[tokio::test]
async fn a_connection_to_a_server_that_became_a_replica_is_replaced_but_not_each_time() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::connect(proxy.url()).await.unwrap();
    assert_eq!(proxy.accepted(), 2);
    let () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]).await;
    // A new connection has a second before the next replacement.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let began = Instant::now();
    for n in 0..100 {
        let kind = error_kind(&store, &reentrant(&format!("k{n}"))).await;
        assert_eq!(kind, StoreErrorKind::Transient);
    }
    let seconds = began.elapsed().as_secs();
    eventually("both are replaced", LIMIT, async || {
        proxy.accepted() >= 4 && proxy.connections() == 2
    })
    .await;
    let accepted = proxy.accepted();
    assert!(accepted <= 4 + 2 * seconds, "{accepted} in {seconds} s");
    let () = server.ask(&["REPLICAOF", "NO", "ONE"]).await;
    recovers(&store).await;
}
