//! `RedisStore` on a real server.

mod acl;
mod admin;
mod audit;
mod bounded;
mod connections;
mod crowds;
mod fair;
mod fencing;
mod fleet;
mod holds;
mod many;
mod mistaken;
mod outside;
mod overtaking;
mod permits;
mod phases;
mod protocols;
mod records;
mod shared_name;
#[cfg(feature = "redis-tls")]
mod tls;
mod wakeups;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tower_distributed_lock::LockStoreExt;

use tower_distributed_lock::store::{Attempt, Fencing, HoldStatus, Outcome};
use tower_distributed_lock::{
    Hold, HoldId, LockFamily, LockKey, LockMode, LockStore, RedisStore, StoreError, StoreErrorKind,
    Wakeups,
};
use uuid::Uuid;

use crate::support::RedisServer;

pub(crate) const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) async fn server_and_store() -> (RedisServer, RedisStore) {
    let server = RedisServer::start().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    (server, store)
}

/// An attempt of a new owner, without patience.
pub(crate) fn attempt(key: impl Into<LockKey>, mode: LockMode) -> Attempt {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Attempt::new(
        Hold {
            key: key.into(),
            mode,
            id: HoldId::new(
                Uuid::from_u128(0xa11ce),
                NEXT.fetch_add(1, Ordering::Relaxed),
            ),
        },
        LEASE,
    )
}

pub(crate) fn patient(key: impl Into<LockKey>, mode: LockMode) -> Attempt {
    attempt(key, mode).patience(Duration::from_secs(60))
}

pub(crate) fn lasting(attempt: Attempt, lease: Duration) -> Attempt {
    let mut attempt = attempt;
    attempt.lease = lease;
    attempt
}

pub(crate) fn fenced(attempt: Attempt, fencing: Fencing) -> Attempt {
    attempt.fencing(fencing)
}

/// Asks, and returns whether it was granted.
pub(crate) async fn asks(store: &RedisStore, attempt: &Attempt) -> bool {
    match store.acquire(attempt).await.unwrap() {
        Outcome::Granted { .. } => true,
        Outcome::Refused { .. } => false,
    }
}

/// Asks, expects a refusal, and returns when to ask again.
pub(crate) async fn retry_after(store: &RedisStore, attempt: &Attempt) -> Duration {
    match store.acquire(attempt).await.unwrap() {
        Outcome::Granted { .. } => panic!("granted"),
        Outcome::Refused { retry_after } => retry_after,
    }
}

pub(crate) async fn releases(store: &RedisStore, attempt: &Attempt) -> bool {
    store.release_one(&attempt.hold).await.unwrap().status == HoldStatus::Held
}

pub(crate) async fn holds(store: &RedisStore, attempt: &Attempt) -> bool {
    let standings = store.check(std::slice::from_ref(&attempt.hold)).await;
    standings.unwrap() == [HoldStatus::Held]
}

pub(crate) async fn error(store: &RedisStore, attempt: &Attempt) -> StoreError {
    store.acquire(attempt).await.unwrap_err()
}

pub(crate) async fn error_kind(store: &RedisStore, attempt: &Attempt) -> StoreErrorKind {
    error(store, attempt).await.kind()
}

pub(crate) async fn configure(server: &RedisServer, name: &str, value: &str) {
    let mut redis = server.connection().await;
    let set = redis::cmd("CONFIG").arg(&["SET", name, value]).to_owned();
    set.exec_async(&mut redis).await.unwrap();
}

/// Waits for a wake-up.
pub(crate) async fn woken(wakeups: &mut Wakeups) {
    let limit = Duration::from_secs(10);
    let woken = tokio::time::timeout(limit, wakeups.wait()).await;
    assert_eq!(woken, Ok(true), "a wake-up");
}

/// Waits for the end of the subscription.
pub(crate) async fn over(wakeups: &mut Wakeups) {
    let ended = async { while wakeups.wait().await {} };
    let limit = Duration::from_secs(10);
    let in_time = tokio::time::timeout(limit, ended).await;
    in_time.expect("the subscription ends");
}

/// Asserts that no wake-up has arrived or arrives soon.
pub(crate) async fn asleep(wakeups: &mut Wakeups) {
    let moment = Duration::from_millis(100);
    let woken = tokio::time::timeout(moment, wakeups.wait()).await;
    assert!(woken.is_err(), "a wake-up came");
}
