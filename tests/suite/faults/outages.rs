//! A server that ends and restarts, with or without its data, and a server that refuses clients.

use std::time::{Duration, Instant};

use redis::AsyncTypedCommands;
use tower_distributed_lock::{
    LockError, LockMode, LockStore, RedisStore, StoreError, StoreErrorKind,
};

use super::{
    MODES, PATIENT, SOON, client, command, granted, hold_everything, info, outcome, rival, told,
    wait_for_everything, works_again,
};
use crate::redis_store::attempt;
use crate::support::{RedisServer, eventually};

/// S5, L4, L6. The holds are gone with the data, and no release is confirmed; waiting requests are granted or fail in
/// time.
#[tokio::test]
async fn a_terminated_server_confirms_nothing_and_every_waiter_is_answered() {
    let mut server = RedisServer::start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    let guards = hold_everything(&holder).await;
    let waiting = wait_for_everything(&server, &other).await;
    server.stop().await;
    assert!(
        waiting.iter().all(|waiting| !waiting.is_finished()),
        "they were asleep when it ended"
    );
    server.restart().await;
    for guard in guards {
        let released = guard.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    }
    for waiting in waiting {
        match outcome(waiting).await {
            Ok(guard) => guard.release().await.expect("held"),
            // It asked while the server was down.
            Err(LockError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    works_again(&server, &[&holder, &other]).await;
}

/// S5, S6, L6. A release that began while the server was dead learns of the loss when the server is back.
#[tokio::test]
async fn a_killed_server_without_persistence_loses_locks_and_confirms_no_release() {
    let mut server = RedisServer::start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    let mut guards = Vec::new();
    for mode in MODES {
        let fenced = holder.lock(mode.as_str()).mode(mode);
        let fenced = if mode == LockMode::Read {
            fenced
        } else {
            fenced.fenced()
        };
        guards.push(fenced.await.expect("free"));
    }
    let early = holder.lock("early").await.expect("free");
    server.kill9();
    let released_early = tokio::spawn(early.release());
    eventually("the client knows", SOON, async || {
        let asked = other.lock("new").wait(Duration::ZERO).await;
        matches!(asked, Err(LockError::Unavailable(_)))
    })
    .await;
    assert!(
        !released_early.is_finished(),
        "no server could have answered"
    );
    server.restart().await;
    for (mode, stale) in MODES.into_iter().zip(guards) {
        let next = eventually("it is free", SOON, async || {
            let asking = other.lock(mode.as_str()).mode(mode);
            let fenced = mode != LockMode::Read;
            if fenced { asking.fenced() } else { asking }.await
        })
        .await;
        assert!(
            next.fencing_token() > stale.fencing_token() || mode == LockMode::Read,
            "{mode:?}: tokens rise though their counter was lost"
        );
        let released = stale.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        next.release().await.expect("it is another's");
    }
    let early = outcome(released_early).await;
    assert!(early.is_err(), "{early:?}");
    works_again(&server, &[&holder, &other]).await;
}

/// S1, S5, S6. With `appendfsync always`, SIGKILL loses no lock.
#[tokio::test]
async fn a_killed_server_with_an_append_only_file_keeps_locks_and_confirms_them() {
    let persistent = RedisServer::builder().config("appendonly", "yes");
    let mut server = persistent.config("appendfsync", "always").start().await;
    let (holder, other) = (client(server.url()).await, client(server.url()).await);
    let guards = hold_everything(&holder).await;
    let fenced = holder.lock("fenced").fenced().await.expect("free");
    let token = fenced.fencing_token();
    server.kill9();
    let releasing = tokio::spawn(fenced.release());
    eventually("the client knows", SOON, async || {
        let asked = holder.lock("new").wait(Duration::ZERO).await;
        matches!(asked, Err(LockError::Unavailable(_)))
    })
    .await;
    assert!(!releasing.is_finished(), "no server could have answered");
    server.restart().await;
    for mode in MODES {
        eventually("the others are still kept out", SOON, async || {
            let asking = other.lock(mode.as_str()).mode(rival(mode));
            match asking.wait(Duration::ZERO).await {
                Err(LockError::Busy { .. }) => true,
                // Its connection has not been restored yet.
                Err(LockError::Unavailable(_)) => false,
                granted => panic!("{mode:?}: {granted:?}"),
            }
        })
        .await;
    }
    for guard in guards {
        guard.release().await.expect("held all the time");
    }
    outcome(releasing).await.expect("held until its release");
    let next = other.lock("fenced").fenced().await.expect("free");
    assert!(next.fencing_token() > token);
    next.release().await.expect("held");
    works_again(&server, &[&holder, &other]).await;
}

/// L4, S5. A server that is loading is not down: waiting requests are granted when it has loaded.
#[tokio::test]
async fn a_server_that_is_loading_is_waited_for_and_keeps_what_it_loads() {
    let mut server = RedisServer::builder()
        .config("rdbcompression", "no")
        // Two seconds for the data below. The server handles its connections every two megabytes, so after each key.
        .config("key-load-delay", "100000")
        .start()
        .await;
    let mut redis = server.connection().await;
    let ballast = "x".repeat(5 << 19);
    for n in 0..20 {
        let stored = redis.set(format!("ballast:{n}"), &ballast).await;
        stored.expect("stored");
    }
    let locks = client(server.url()).await;
    let mut guards = hold_everything(&locks).await;
    let kept = guards.split_off(guards.len() / 2);
    command(&server, &["SAVE"]).await;
    server.kill9();
    let store = RedisStore::builder(server.url()).connect_lazy().unwrap();
    let loading = async {
        let probe = attempt("probe", LockMode::Reentrant);
        eventually("it is loading", SOON, async || {
            let error = store.acquire(&probe).await.err()?;
            let loading = told(&error).to_uppercase().contains("LOADING");
            loading.then(|| assert_eq!(error.kind(), StoreErrorKind::Transient))
        })
        .await;
        let patient = tokio::spawn(locks.lock("new").wait(PATIENT).acquire());
        let releasing = guards
            .into_iter()
            .map(|guard| tokio::spawn(guard.release()));
        (patient, releasing.collect::<Vec<_>>())
    };
    let ((), (patient, releasing)) = tokio::join!(server.restart(), loading);
    granted(patient).await.release().await.expect("held");
    for released in releasing {
        let released = outcome(released).await;
        // Loading may take longer than a caller waits.
        assert!(
            matches!(released, Ok(()) | Err(LockError::Unconfirmed(_))),
            "{released:?}"
        );
    }
    for guard in kept {
        guard.release().await.expect("it was loaded, and held");
    }
    let ballast: Vec<_> = (0..20).map(|n| format!("ballast:{n}")).collect();
    let removed = server.connection().await.del(ballast).await;
    removed.expect("removed");
    works_again(&server, &[&locks]).await;
}

/// L4, L6. A server at its connection limit is not down, and holds remain.
#[tokio::test]
async fn a_server_at_its_connection_limit_fails_waits_and_loses_no_lock() {
    fails_waits_and_loses_no_lock_at_the_limit(RedisServer::start().await).await;
}

/// The same, where the server says so instead of an answer to the password.
#[tokio::test]
async fn a_server_with_a_password_at_its_connection_limit_fails_waits_and_loses_no_lock() {
    let server = RedisServer::builder().password("secret").start().await;
    fails_waits_and_loses_no_lock_at_the_limit(server).await;
}

async fn fails_waits_and_loses_no_lock_at_the_limit(server: RedisServer) {
    let locks = client(server.url()).await;
    let guards = hold_everything(&locks).await;
    let mut redis = server.connection().await;
    let mut tell = async |words: &[&str]| {
        let done: Result<redis::Value, _> = redis::cmd(words[0])
            .arg(&words[1..])
            .query_async(&mut redis)
            .await;
        done.expect("done");
    };
    tell(&["CONFIG", "SET", "maxclients", "1"]).await;
    tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let began = Instant::now();
    let asked = locks.lock("new").wait(Duration::from_millis(700)).await;
    let error = asked.expect_err("no connection can be opened");
    let is_final = |error: &StoreError| error.kind() == StoreErrorKind::Refused;
    assert!(
        matches!(&error, LockError::Unavailable(error) if !is_final(error)),
        "{error:?}"
    );
    assert!(began.elapsed() < SOON);
    let releasing: Vec<_> = guards
        .into_iter()
        .map(|guard| tokio::spawn(guard.release()))
        .collect();
    tell(&["CONFIG", "SET", "maxclients", "10000"]).await;
    assert!(info(&server, "stats", "rejected_connections:").await > 0);
    for released in releasing {
        outcome(released).await.expect("held all the time");
    }
    works_again(&server, &[&locks]).await;
}
