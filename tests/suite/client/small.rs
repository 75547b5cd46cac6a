//! Small things that callers look for.

use std::time::Duration;

use axum::response::IntoResponse;
use http::HeaderValue;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::{FencingToken, LockClient, LockError, MemoryStore, RedisStore};
use tower_distributed_lock_quorum::QuorumStore;

use crate::support::{RedisServer, Site};

#[tokio::test]
async fn a_busy_lock_is_no_error_of_a_try() {
    let locks = LockClient::new(MemoryStore::new());
    let guard = locks.try_lock("k").await.unwrap().expect("it is free");
    assert!(locks.try_lock("k").await.unwrap().is_none());
    assert!(
        locks
            .lock("k")
            .fenced()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    guard.release().await.unwrap();
    locks.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(matches!(
        locks.try_lock("k").await,
        Err(LockError::Shutdown)
    ));
}

#[tokio::test]
async fn a_ping_is_answered_while_the_store_is_there() {
    for site in Site::all().await {
        let locks = site.client().await;
        locks
            .ping()
            .await
            .unwrap_or_else(|error| panic!("{}: {error:?}", site.name()));
        assert_eq!(locks.keys_in_use(), 0);
    }
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    let one = LockClient::new(RedisStore::connect(servers[0].url()).await.unwrap());
    let stores = servers.iter().map(|server| {
        let lazily = RedisStore::builder(server.url()).connect_lazy();
        lazily.unwrap()
    });
    let quorum = LockClient::new(QuorumStore::new(stores).unwrap());
    quorum.ping().await.unwrap();
    drop(servers.remove(0));
    assert!(matches!(one.ping().await, Err(LockError::Unavailable(_))));
    quorum.ping().await.unwrap();
    drop(servers.remove(0));
    assert!(matches!(
        quorum.ping().await,
        Err(LockError::Unavailable(_))
    ));
}

#[test]
fn an_error_says_whether_to_try_again() {
    let unavailable = |kind| LockError::Unavailable(StoreError::new(kind, "a reason"));
    let silence = StoreError::new(StoreErrorKind::Unanswered, "a reason");
    let unconfirmed = LockError::Unconfirmed(silence);
    let conflict = LockError::Conflict(StoreError::new(StoreErrorKind::Conflict, "a reason"));
    for (error, busy, retryable) in [
        (LockError::Overloaded, true, true),
        (unavailable(StoreErrorKind::Unanswered), false, true),
        (unavailable(StoreErrorKind::Unreachable), false, true),
        (unavailable(StoreErrorKind::Refused), false, false),
        (conflict, false, false),
        (LockError::Lost, false, false),
        (unconfirmed, false, false),
        (LockError::Shutdown, false, false),
        (LockError::Upgrade, false, false),
    ] {
        let verdict = (error.is_busy(), error.is_retryable());
        assert_eq!(verdict, (busy, retryable), "{error:?}");
    }
}

#[test]
fn a_token_is_a_number_and_a_header() {
    let token = FencingToken::new(42);
    assert_eq!(token.value(), 42);
    assert_eq!(HeaderValue::from(token), "42");
}

#[tokio::test]
async fn a_handler_answers_a_lock_error_as_a_layer_does() {
    let locks = LockClient::new(MemoryStore::new());
    let held = locks.lock("k").await.unwrap();
    let busy = locks.lock("k").wait(Duration::ZERO).await.unwrap_err();
    assert!(busy.is_busy() && busy.is_retryable());
    let status = tonic::Status::from(busy.clone());
    assert_eq!(status.code(), tonic::Code::Aborted);
    let response = busy.into_response();
    assert_eq!(response.status(), 423);
    assert!(response.headers().contains_key("retry-after"));
    held.release().await.unwrap();
    locks.shutdown(Duration::from_secs(1)).await.unwrap();
    let shut_down = locks.lock("k").await.unwrap_err();
    let status = tonic::Status::from(shut_down.clone());
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(shut_down.into_response().status(), 503);
}
