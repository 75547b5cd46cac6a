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
mod stalls;
#[cfg(feature = "redis-tls")]
mod tls;
mod wakeups;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::{Hold, HoldId, LockFamily};
use tower_distributed_lock::store::{
    Attempt, Fencing, HoldStatus, Inspect, LockStore, LockStoreExt, Outcome, Wakeups,
};
use tower_distributed_lock::{LockKey, LockMode, RedisStore};
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

/// What is unusual about a lock (docs/protocol.md 1.14): its words, in their order; none if nothing is.
pub(crate) async fn unusual(server: &RedisServer, busy: &str) -> Vec<String> {
    let words: Option<String> = server.ask(&["GET", busy]).await;
    let words = words.unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

/// Replaces one of these words.
pub(crate) async fn change_unusual(server: &RedisServer, busy: &str, place: usize, word: &str) {
    let mut words = unusual(server, busy).await;
    word.clone_into(&mut words[place]);
    let () = server
        .ask(&["SET", busy, &words.join(" "), "KEEPTTL"])
        .await;
}

/// The places of some words.
pub(crate) const ASKED: usize = 0;
pub(crate) const LATE: usize = 1;
pub(crate) const VOID: usize = 2;
pub(crate) const TURN: usize = 3;
pub(crate) const ENDS: usize = 4;

/// Asks, expects a refusal, and returns when to ask again.
pub(crate) async fn retry_after(store: &RedisStore, attempt: &Attempt) -> Duration {
    match store.acquire(attempt).await.unwrap() {
        Outcome::Granted { .. } => panic!("granted"),
        Outcome::Refused { retry_after } => retry_after,
    }
}

pub(crate) async fn releases(store: &RedisStore, attempt: &Attempt) -> bool {
    store.release(&attempt.hold, None).await.unwrap().status == HoldStatus::Held
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

/// Asserts that a forced unlock wakes the first in line, and that the next one is woken when the first gives up. `a` forces,
/// and `b` waits.
pub(crate) async fn the_line_is_woken(a: &RedisStore, b: &RedisStore, key: &str, mode: LockMode) {
    let waiting = match mode {
        LockMode::Read => LockMode::Write,
        mode => mode,
    };
    let (holder, first) = (attempt(key, mode), patient(key, waiting));
    // It waits in another process, which has a channel of its own.
    let mut next = patient(key, waiting);
    next.hold.id = HoldId::new(Uuid::from_u128(0xb0b), 1);
    assert!(asks(a, &holder).await && !asks(b, &first).await && !asks(b, &next).await);
    let mut first_woken = b.subscribe(&first).await.unwrap();
    let mut next_woken = b.subscribe(&next).await.unwrap();

    assert!(a.force_unlock(&holder.hold.key).await.unwrap(), "{mode:?}");
    woken(&mut first_woken).await;
    asleep(&mut next_woken).await;
    b.withdraw(&first, false).await.unwrap();
    woken(&mut next_woken).await;
    assert!(asks(b, &next).await && releases(b, &next).await, "{mode:?}");
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
