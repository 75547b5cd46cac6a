//! Bugs of semaphores.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, Inspect, LockStore};
use tower_distributed_lock::{LockClient, LockError, LockMode, LockRequest};
use uuid::Uuid;

use super::{KEY, Shown, client, exhibit, expect};
use crate::support::Flaw;

const LEASE: Duration = Duration::from_secs(3);

const LIMIT: u32 = 2;

fn permit(locks: &LockClient) -> LockRequest {
    locks.lock(KEY).permits(LIMIT).wait(Duration::ZERO)
}

/// Takes permits until none is free, each by a client of its own. Returns how many there were.
async fn count(new: impl Fn() -> LockClient) -> usize {
    let mut guards = Vec::new();
    while let Ok(guard) = permit(&new()).await {
        guards.push(guard);
    }
    guards.len()
}

fn expect_the_limit(held: usize) -> Result<(), Shown> {
    let story = format!("{held} hold one of {LIMIT} permits");
    expect(held == LIMIT as usize, &story)
}

/// Redisson, issue 4086: `tryRelease` returned true for a permit that had expired. Here it expires early, by a clock of the
/// store that is ahead.
#[test]
fn the_release_of_an_expired_permit_is_not_confirmed() {
    exhibit(Flaw::Confirms, async |store| {
        let slow = client(&store);
        let guard = permit(&slow).await.unwrap();
        store.force_unlock(&KEY.into()).await.unwrap();
        let held = count(|| client(&store)).await;
        expect_the_limit(held)?;
        let released = guard.release().await;
        let honest = matches!(released, Err(LockError::Lost));
        expect(honest, "it is said to have had a permit until its release")
    });
}

/// Redisson, issue 7329, of its rate limiter: what had been released was counted again when it expired, so that there were
/// more permits than the limit.
#[test]
fn a_permit_comes_back_once() {
    exhibit(Flaw::PermitReturnsTwice, async |store| {
        let slow = client(&store);
        // A guard that knows of its loss sends no release.
        let hold = Hold {
            key: KEY.into(),
            mode: LockMode::permits(LIMIT),
            id: HoldId::new(slow.id(), 1),
        };
        store
            .acquire(&Attempt::new(hold.clone(), LEASE))
            .await
            .unwrap();
        sleep(LEASE * 2).await;
        store.release(&hold, None).await.unwrap();
        expect_the_limit(count(|| client(&store)).await)
    });
}

/// Redisson, issue 4678: `trySetPermits` set the number of free permits again when none was free, so that all permits were
/// granted once more.
#[test]
fn a_limit_that_is_named_again_frees_no_permit() {
    exhibit(Flaw::LimitForgetsHolders, async |store| {
        expect_the_limit(count(|| client(&store)).await)
    });
}

/// Redisson, issue 2045: the permit of a machine that was switched off never came back.
#[test]
fn the_permit_of_a_dead_holder_comes_back() {
    exhibit(Flaw::HoldsForEver, async |store| {
        for number in 0..u64::from(LIMIT) {
            let hold = Hold {
                key: KEY.into(),
                mode: LockMode::permits(LIMIT),
                id: HoldId::new(Uuid::from_u128(1), number),
            };
            store.acquire(&Attempt::new(hold, LEASE)).await.unwrap();
        }
        let next = client(&store);
        let asking = permit(&next).wait(LEASE * 10).acquire();
        let granted = timeout(LEASE * 2, asking).await;
        expect(granted.is_ok(), "both permits belong to the dead")
    });
}
