//! One connection for all wake-ups. Subscriptions are counted, and outlive the connection.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_distributed_lock::LockMode;
use tower_distributed_lock::store::LockStore;

use super::*;
use crate::support::{Ending, Proxy, eventually};

const LIMIT: Duration = Duration::from_secs(20);

async fn listening_connections(server: &RedisServer) -> usize {
    let clients = server.client_list().await;
    clients.iter().filter(|client| client["sub"] != "0").count()
}

async fn no_channels(server: &RedisServer) {
    eventually("no subscription is left", LIMIT, async || {
        server.pubsub_channels().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn subscriptions_are_counted_down_to_nothing() {
    let (server, store) = server_and_store().await;
    assert_eq!(
        listening_connections(&server).await,
        0,
        "none is opened before it is needed"
    );
    let waiters: Vec<_> = (0..10)
        .map(|n| attempt(format!("k{}", n % 3), LockMode::Reentrant))
        .collect();
    let subscribing = waiters.iter().map(|waiter| store.subscribe(waiter));
    let mut wakeups: Vec<_> = futures_util::future::join_all(subscribing)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let channels = server.pubsub_channels().await;
    assert_eq!(channels.len(), 3, "{channels:?}");
    assert!(channels.values().all(|subscribers| *subscribers == 1));
    assert_eq!(listening_connections(&server).await, 1);

    let holder = attempt("k0", LockMode::Reentrant);
    assert!(asks(&store, &holder).await && releases(&store, &holder).await);
    for (n, wakeups) in wakeups.iter_mut().enumerate() {
        if n % 3 == 0 {
            woken(wakeups).await;
        } else {
            asleep(wakeups).await;
        }
    }
    wakeups.truncate(3);
    assert_eq!(server.pubsub_channels().await.len(), 3);
    // Dropping never blocks, and needs no runtime.
    std::thread::spawn(move || drop(wakeups)).join().unwrap();
    no_channels(&server).await;
}

#[tokio::test]
async fn leaving_and_coming_back_at_once_loses_no_wake_up() {
    let (server, store) = server_and_store().await;
    let waiter = attempt("k", LockMode::Reentrant);
    let holder = attempt("k", LockMode::Reentrant);
    let mut last = store.subscribe(&waiter).await.unwrap();
    for round in 0..200 {
        drop(last);
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        last = store.subscribe(&waiter).await.unwrap();
        assert!(asks(&store, &holder).await && releases(&store, &holder).await);
        woken(&mut last).await;
    }
    drop(last);
    no_channels(&server).await;
}

#[tokio::test]
async fn a_cut_connection_subscribes_again_and_wakes_every_listener() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::connect(proxy.url()).await.unwrap();
    let mut wakeups = Vec::new();
    for n in 0..5 {
        let waiter = patient(format!("k{n}"), LockMode::Fair);
        wakeups.push(store.subscribe(&waiter).await.unwrap());
    }
    proxy.cut(Ending::Reset).await;
    for wakeups in &mut wakeups {
        woken(wakeups).await;
    }
    assert_eq!(server.pubsub_channels().await.len(), 5);
    assert_eq!(listening_connections(&server).await, 1);
}

#[tokio::test]
async fn a_killed_connection_subscribes_again_and_wakes_every_listener() {
    let (server, store) = server_and_store().await;
    let waiter = attempt("k", LockMode::Write);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    let mut redis = server.connection().await;
    for _ in 0..3 {
        let kill = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "pubsub"])
            .to_owned();
        kill.exec_async(&mut redis).await.unwrap();
        woken(&mut wakeups).await;
    }
    let holder = attempt("k", LockMode::Read);
    assert!(asks(&store, &holder).await && releases(&store, &holder).await);
    woken(&mut wakeups).await;
}

#[tokio::test]
async fn subscribing_fails_at_once_while_redis_is_known_to_be_down_and_works_again_later() {
    let mut server = RedisServer::start().await;
    let store = RedisStore::builder(server.url()).connect_timeout(LIMIT);
    let store = store.connect().await.unwrap();
    let waiter = attempt("k", LockMode::Reentrant);
    let mut early = store.subscribe(&waiter).await.unwrap();
    server.kill9();
    eventually("it is noticed", LIMIT, async || {
        let other = attempt("other", LockMode::Reentrant);
        store.subscribe(&other).await.is_err()
    })
    .await;
    let began = std::time::Instant::now();
    let error = store.subscribe(&waiter).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(began.elapsed() < LIMIT / 2);
    server.restart().await;
    // The earlier waiter is woken, and subscribed again.
    woken(&mut early).await;
    eventually("new ones may subscribe", LIMIT, async || {
        store.subscribe(&waiter).await
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_died_silently_is_noticed() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let store = RedisStore::builder(proxy.url())
        .response_timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    let mut wakeups = store
        .subscribe(&attempt("k", LockMode::Write))
        .await
        .unwrap();
    let before = proxy.accepted();
    proxy.replies.hold();
    eventually("it connects anew", LIMIT, async || {
        proxy.accepted() > before
    })
    .await;
    proxy.replies.release();
    woken(&mut wakeups).await;
}

/// L8. The server executes afterwards what it was sent.
#[tokio::test]
async fn a_listener_that_leaves_while_the_server_is_silent_leaves_no_subscription() {
    let mut server = RedisServer::start().await;
    let response = Duration::from_millis(300);
    let store = RedisStore::builder(server.url())
        .response_timeout(response)
        .connect()
        .await
        .unwrap();
    let stays = attempt("stays", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&stays).await.unwrap();
    server.pause();
    let leaves = attempt("leaves", LockMode::Reentrant);
    let subscribed = timeout(response / 2, store.subscribe(&leaves)).await;
    assert!(subscribed.is_err(), "it is silent");
    // Longer than the connection waits for an answer, and shorter than a probe of it.
    sleep(3 * response).await;
    server.resume();
    woken(&mut wakeups).await;
    eventually("one subscription is left", LIMIT, async || {
        let channels = server.pubsub_channels().await;
        channels.len() == 1 && channels.values().all(|subscribers| *subscribers == 1)
    })
    .await;
}

#[tokio::test]
async fn a_channel_that_is_not_allowed_is_refused_and_others_are_not_disturbed() {
    let server = RedisServer::builder()
        .config(
            "user",
            "some on >secret ~* +@all resetchannels &redisson_lock__channel:{k} &*{tower_lock_rights}",
        )
        .start()
        .await;
    let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
    let store = RedisStore::connect(url).await.unwrap();
    let allowed = attempt("k", LockMode::Reentrant);
    let forbidden = attempt("other", LockMode::Reentrant);
    let (good, bad) = tokio::join!(store.subscribe(&allowed), store.subscribe(&forbidden));
    let mut wakeups = good.unwrap();
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Refused);
    assert!(asks(&store, &allowed).await && releases(&store, &allowed).await);
    woken(&mut wakeups).await;
}

/// The connection is driven by the store's thread, whichever runtime the first listener is on.
#[tokio::test]
async fn a_runtime_that_ends_does_not_end_the_subscriptions_of_others() {
    let (server, store) = server_and_store().await;
    let first = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let there = store.clone();
    let early = first.spawn(async move {
        let waiter = attempt("early", LockMode::Reentrant);
        there.subscribe(&waiter).await
    });
    let early = early.await.unwrap().unwrap();
    let holder = attempt("k", LockMode::Reentrant);
    assert!(asks(&store, &holder).await);
    let waiter = attempt("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    assert_eq!(listening_connections(&server).await, 1);

    let ended = tokio::task::spawn_blocking(move || first.shutdown_timeout(LIMIT));
    ended.await.unwrap();
    assert_eq!(listening_connections(&server).await, 1);
    let other = RedisStore::connect(server.url()).await.unwrap();
    assert!(releases(&other, &holder).await);
    woken(&mut wakeups).await;
    drop((early, wakeups));
    no_channels(&server).await;
}

/// The rights of its user have changed: Redis closes the connection, and refuses the channel afterwards.
#[tokio::test]
async fn a_subscription_that_is_refused_after_a_reconnect_is_over_and_a_later_one_is_not() {
    let server = RedisServer::builder()
        .config("user", "some on >secret ~* +@all allchannels")
        .start()
        .await;
    let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
    let store = RedisStore::connect(url).await.unwrap();
    let waiter = attempt("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    server
        .ask::<()>(&["ACL", "SETUSER", "some", "resetchannels"])
        .await;
    over(&mut wakeups).await;
    let refused = store.subscribe(&waiter).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    server
        .ask::<()>(&["ACL", "SETUSER", "some", "allchannels"])
        .await;
    let mut later = eventually("it may listen again", LIMIT, async || {
        store.subscribe(&waiter).await
    })
    .await;
    drop(wakeups);
    assert!(asks(&store, &waiter).await && releases(&store, &waiter).await);
    woken(&mut later).await;
    drop(later);
    no_channels(&server).await;
}

#[tokio::test]
async fn the_subscriptions_of_a_store_are_over_when_it_is_dropped() {
    let (_server, store) = server_and_store().await;
    let waiter = attempt("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    drop(store);
    over(&mut wakeups).await;
}
