use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use tower_distributed_lock::audit::Audit;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    HoldStatus, LockStore, LockStoreExt, Outcome, Record, Released, Renewal, Wakeups,
};
use tower_distributed_lock::{LockKey, LockMode, MemoryStore};

use super::*;

mod acquire;
mod client;
mod end;
mod hanging;
mod renew;
mod scripted;
mod simulation;
mod wakeups;

use scripted::{Mood, Scripted};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

/// Five stores with settable behaviour, and their quorum.
fn five() -> (Vec<Scripted>, QuorumStore<Scripted>) {
    let stores: Vec<_> = (0..5).map(|_| Scripted::default()).collect();
    let quorum = QuorumStore::new(stores.clone()).expect("five is a quorum");
    (stores, quorum)
}

fn set(stores: &[Scripted], mood: Mood) {
    for store in stores {
        store.set(mood);
    }
}

/// The attempt of the `n`-th client to get the key of these tests.
fn attempt(mode: LockMode, n: u64) -> Attempt {
    attempt_for("key", mode, n)
}

fn attempt_for(key: &'static str, mode: LockMode, n: u64) -> Attempt {
    let id = HoldId::new(Uuid::nil(), n);
    let key = LockKey::new(key);
    Attempt::new(Hold { key, mode, id }, LEASE).patience(60 * SECOND)
}

/// The same, without patience.
fn impatient(n: u64) -> Attempt {
    reentrant(n).patience(None)
}

fn reentrant(n: u64) -> Attempt {
    attempt(LockMode::Reentrant, n)
}

async fn granted(store: &impl LockStore, attempt: &Attempt) {
    let outcome = store.acquire(attempt).await;
    assert!(
        matches!(outcome, Ok(Outcome::Granted { .. })),
        "{outcome:?}"
    );
}

/// Gives the key to another client in each of these stores.
async fn occupy(stores: &[Scripted]) {
    for store in stores {
        granted(store, &reentrant(9)).await;
    }
}

async fn refused(store: &impl LockStore, attempt: &Attempt) -> Duration {
    match store.acquire(attempt).await {
        Ok(Outcome::Refused { retry_after }) => retry_after,
        other => panic!("{other:?}"),
    }
}

fn kind<T: fmt::Debug>(answer: Result<T, StoreError>) -> StoreErrorKind {
    answer.expect_err("no majority").kind()
}

async fn release(quorum: &impl LockStore, n: u64) -> HoldStatus {
    quorum
        .release(&reentrant(n).hold, None)
        .await
        .unwrap()
        .status
}

/// The number of stores with the attempt's hold.
async fn carriers(stores: &[Scripted], attempt: &Attempt) -> usize {
    let mut count = 0;
    for store in stores {
        count += usize::from(store.carries(&attempt.hold).await);
    }
    count
}

/// Lets all spawned tasks run until they wait for time to pass.
async fn settle() {
    sleep(2 * MS).await;
}

async fn renew(
    quorum: &QuorumStore<Scripted>,
    attempt: &Attempt,
) -> Result<HoldStatus, StoreError> {
    let renewal = Renewal::new(attempt.hold.clone(), attempt.lease);
    Ok(quorum.renew(&[renewal]).await?[0])
}

async fn check(
    quorum: &QuorumStore<Scripted>,
    attempt: &Attempt,
) -> Result<HoldStatus, StoreError> {
    Ok(quorum.check(std::slice::from_ref(&attempt.hold)).await?[0])
}

#[test]
fn a_number_of_stores_that_is_no_quorum_is_refused_with_the_reason() {
    let of = |count| QuorumStore::new((0..count).map(|_| MemoryStore::new())).map(drop);
    assert_eq!(of(0), Err(InvalidQuorum(0)));
    assert_eq!(of(1), Err(InvalidQuorum(1)));
    assert_eq!(of(2), Err(InvalidQuorum(2)));
    assert_eq!(of(3), Ok(()));
    assert_eq!(of(4), Err(InvalidQuorum(4)));
    let reason = InvalidQuorum(4).to_string();
    assert!(reason.contains("tolerates no more failures"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn fair_and_fenced_are_refused_before_anything_is_sent() {
    let (stores, quorum) = five();
    let can = quorum.capabilities();
    assert_eq!(can.check(Feature::Mode(LockMode::Reentrant)), Ok(()));
    let reason = can.check(Feature::Mode(LockMode::Fair)).unwrap_err();
    assert!(reason.to_string().contains("no common queue"), "{reason}");
    let reason = can.check(Feature::Fencing).unwrap_err();
    assert!(reason.to_string().contains("no common counter"), "{reason}");

    let answer = quorum.acquire(&attempt(LockMode::Fair, 1)).await;
    assert_eq!(kind(answer), StoreErrorKind::Refused);
    assert!(stores.iter().all(|store| store.log().is_empty()));
}
