use crate::lock::Hold;
use crate::store::LockStoreExt;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::*;
use crate::error::StoreErrorKind;
use crate::lock::{HoldId, LockKey};
use crate::store::memory::MemoryStore;

mod acquire;
mod client;
mod release;
mod renew;
mod scripted;
mod simulation;
mod subscribe;

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
    Attempt {
        hold: Hold {
            key: LockKey::new("key"),
            mode,
            id: HoldId::new(Uuid::nil(), n),
        },
        id: HoldId::new(Uuid::nil(), n),
        lease: LEASE,
        patience: Some(60 * SECOND),
        in_line: true,
        fencing: None,
    }
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
    quorum.release_one(&reentrant(n).hold).await.unwrap().status
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
    assert_eq!(of(0), Err(InvalidQuorum::TooFew(0)));
    assert_eq!(of(1), Err(InvalidQuorum::TooFew(1)));
    assert_eq!(of(2), Err(InvalidQuorum::TooFew(2)));
    assert_eq!(of(3), Ok(()));
    assert_eq!(of(4), Err(InvalidQuorum::Even(4)));
    assert_eq!(of(63), Ok(()));
    assert_eq!(of(65), Err(InvalidQuorum::TooMany(65)));
    let reason = InvalidQuorum::Even(4).to_string();
    assert!(reason.contains("tolerates no more failures"), "{reason}");
    let reason = InvalidQuorum::TooMany(65).to_string();
    assert!(reason.contains("at most 63"), "{reason}");
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
