use crate::store::{Inspect, LockStoreExt, ProcessInfo};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::advance;
use uuid::Uuid;

use super::*;
use crate::error::StoreErrorKind;
use crate::lock::{HoldId, LockMode};

mod fair;
mod keeping;
mod many;
mod outside;
mod phases;
mod random;
mod rules;
mod wakeups;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

/// The attempt of the `n`-th client to get the key of these tests.
fn attempt(mode: LockMode, n: u64) -> Attempt {
    Attempt {
        hold: Hold {
            key: LockKey::new("key"),
            mode,
            id: HoldId::new(Uuid::nil(), n),
        },
        lease: LEASE,
        patience: Some(60 * SECOND),
        in_line: true,
        fencing: None,
    }
}

fn impatient(mode: LockMode, n: u64) -> Attempt {
    Attempt {
        patience: None,
        ..attempt(mode, n)
    }
}

/// The store's answer, which is ready at the first poll.
fn at_once<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    let answer = answer
        .now_or_never()
        .expect("it completes when first polled");
    answer.expect("no conflict")
}

fn outcome(store: &MemoryStore, attempt: &Attempt) -> Outcome {
    at_once(store.acquire(attempt))
}

#[track_caller]
fn granted(store: &MemoryStore, attempt: &Attempt) {
    let outcome = outcome(store, attempt);
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
}

/// Checks that the attempt is refused, with this hint.
#[track_caller]
fn refused(store: &MemoryStore, attempt: &Attempt, hint: Duration) {
    let retry_after = hint;
    assert_eq!(outcome(store, attempt), Outcome::Refused { retry_after });
}

/// Checks that the store refuses the attempt as withdrawn.
#[track_caller]
fn refused_as_withdrawn(store: &MemoryStore, attempt: &Attempt) {
    let answer = store.acquire(attempt).now_or_never();
    let error = answer.expect("it completes when first polled").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
}

#[track_caller]
fn released(store: &MemoryStore, attempt: &Attempt) {
    assert_eq!(
        at_once(store.release(&attempt.hold, None)).status,
        HoldStatus::Held
    );
}

fn withdraw(store: &MemoryStore, attempt: &Attempt, unanswered: bool) {
    at_once(store.withdraw(attempt, unanswered));
}

fn check(store: &MemoryStore, attempt: &Attempt) -> HoldStatus {
    at_once(store.check(std::slice::from_ref(&attempt.hold)))[0]
}

fn renew(store: &MemoryStore, attempt: &Attempt, lease: Duration) -> HoldStatus {
    let hold = attempt.hold.clone();
    at_once(store.renew(&[Renewal::new(hold, lease)]))[0]
}

fn subscribe(store: &MemoryStore, attempt: &Attempt) -> Wakeups {
    at_once(store.subscribe(attempt))
}

/// Whether there was a wake-up since the last call.
fn woken(wakeups: &mut Wakeups) -> bool {
    wakeups.wait().now_or_never() == Some(true)
}
