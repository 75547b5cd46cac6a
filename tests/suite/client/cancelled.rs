//! A drop at any moment releases.

use tower_distributed_lock::{LockError, LockMode};

use super::{MODES, SOON, client, know_scripts, until_nothing_is_left};
use crate::support::{Proxy, RedisServer, eventually};

#[tokio::test]
async fn an_acquisition_dropped_with_its_reply_on_the_way_leaves_nothing() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    let locks = client(proxy.url()).await;
    for mode in MODES {
        know_scripts(&locks, mode).await;
        proxy.replies.hold();
        let asking = tokio::spawn(locks.lock("n").mode(mode).acquire());
        assert!(proxy.replies.until_caught().await.held > 0);
        eventually("it was granted unheard", SOON, async || {
            redis.dump().await.contains_key("n")
        })
        .await;
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        proxy.replies.release();
        until_nothing_is_left(&redis).await;
    }
    assert_eq!(locks.keys_in_use(), 0);
}

#[tokio::test]
async fn an_acquisition_dropped_with_its_request_on_the_way_leaves_nothing() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    let locks = client(proxy.url()).await;
    for mode in MODES {
        proxy.requests.hold();
        let asking = tokio::spawn(locks.lock("n").mode(mode).acquire());
        assert!(proxy.requests.until_caught().await.held > 0);
        asking.abort();
        let _ = asking.await;
        assert!(redis.dump().await.is_empty());
        proxy.requests.release();
        // The lock is free soon: the attempt does not stay until the end of its lease of 30 s.
        let guard = locks.lock("n").mode(mode).wait(SOON).await;
        guard.expect("free").release().await.expect("held");
        until_nothing_is_left(&redis).await;
    }
}

#[tokio::test]
async fn a_waiter_dropped_leaves_neither_entry_nor_subscription() {
    let redis = RedisServer::start().await;
    let [holder, waiter] = [client(redis.url()).await, client(redis.url()).await];
    for mode in MODES {
        let held = match mode {
            LockMode::Reentrant | LockMode::Fair => LockMode::Reentrant,
            LockMode::Read | LockMode::Write => LockMode::Write,
            LockMode::Permit(_) => mode,
        };
        let guard = holder.lock("n").mode(held).await.expect("free");
        let before = redis.dump().await;
        let waiting = tokio::spawn(waiter.lock("n").mode(mode).acquire());
        eventually("it listens", SOON, async || {
            !redis.pubsub_channels().await.is_empty()
        })
        .await;
        waiting.abort();
        let _ = waiting.await;
        eventually("the waiter has gone", SOON, async || {
            redis.pubsub_channels().await.is_empty() && redis.dump().await.keys().eq(before.keys())
        })
        .await;
        guard.release().await.expect("held all the time");
        until_nothing_is_left(&redis).await;
    }
}

#[tokio::test]
async fn a_release_dropped_on_its_way_goes_on() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    let locks = client(proxy.url()).await;
    for mode in MODES {
        let guard = locks.lock("n").mode(mode).await.expect("free");
        proxy.requests.hold();
        let releasing = tokio::spawn(guard.release());
        assert!(proxy.requests.until_caught().await.held > 0);
        releasing.abort();
        let _ = releasing.await;
        proxy.requests.release();
        until_nothing_is_left(&redis).await;
    }
}

#[tokio::test]
async fn a_shutdown_releases_holds_fails_waiters_and_refuses_new_requests() {
    let redis = RedisServer::start().await;
    let locks = client(redis.url()).await;
    let guard = locks.lock("a").await.expect("free");
    let waiting = tokio::spawn(locks.lock("a").acquire());
    let held_elsewhere = client(redis.url()).await;
    let other = held_elsewhere.lock("b").await.expect("free");
    let queued = tokio::spawn(locks.lock("b").mode(LockMode::Fair).acquire());
    eventually("it is queued", SOON, async || {
        redis.dump().await.contains_key("redisson_lock_queue:{b}")
    })
    .await;
    locks.shutdown(SOON).await.expect("everything is released");
    for waiter in [waiting, queued] {
        let refused = waiter.await.expect("no panic").expect_err("no lock");
        assert!(matches!(refused, LockError::Shutdown), "{refused:?}");
    }
    assert!(guard.is_lost());
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    assert!(matches!(locks.lock("c").await, Err(LockError::Shutdown)));
    other.release().await.expect("it is another client's");
    until_nothing_is_left(&redis).await;
}
