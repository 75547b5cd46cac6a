//! Bugs of holders, and of cancelled acquisitions.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, LockStore};
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode};
use uuid::Uuid;

use super::{KEY, client, exhibit, expect};
use crate::support::Flaw;

const LEASE: Duration = Duration::from_secs(3);

async fn is_free(locks: &LockClient) -> bool {
    locks.lock(KEY).wait(Duration::ZERO).await.is_ok()
}

/// Redisson, issue 7272: the watchdog's renewal outlives the release, and the key of a free lock is renewed for ever.
#[test]
fn a_renewal_that_races_the_release_creates_no_hold() {
    exhibit(Flaw::Resurrects, async |store| {
        let locks = client(&store);
        let guard = locks.lock(KEY).lease(Lease::Renewed(LEASE)).await.unwrap();
        store.renewing.close();
        store.renewing.reached().await;
        guard.release().await.unwrap();
        store.renewing.open();
        sleep(Duration::from_millis(10)).await;
        let free = is_free(&client(&store)).await;
        expect(free, "a lock that was released is held without a holder")
    });
}

/// Laravel, issue 26213: the release of an expired lock deleted the lock of the next holder.
#[test]
fn a_stale_owner_does_not_release_the_next_hold() {
    exhibit(Flaw::ReleasesOthers, async |store| {
        let stale = client(&store);
        let stale = stale.lock(KEY).lease(Lease::Fixed(LEASE)).await.unwrap();
        sleep(LEASE * 2).await;
        let next = client(&store).lock(KEY).await.unwrap();
        let released = stale.release().await;
        let free = is_free(&client(&store)).await;
        next.release().await.unwrap();
        expect(!free, "a third gets in while the second is there")?;
        let honest = matches!(released, Err(LockError::Lost));
        expect(honest, "the first learns that it had the lock to the end")
    });
}

/// DistributedLock, its lock for readers and writers in Redis: the set of the readers has one expiry, which each reader
/// renews, so that a dead reader remains in the set while another reader lives.
#[test]
fn each_reader_has_its_own_time_to_live() {
    exhibit(Flaw::OneTimeToLive, async |store| {
        let dead = Hold {
            key: KEY.into(),
            mode: LockMode::Read,
            id: HoldId::new(Uuid::from_u128(1), 1),
        };
        store.acquire(&Attempt::new(dead, LEASE)).await.unwrap();
        let reader = client(&store);
        let reading = reader.lock(KEY).mode(LockMode::Read);
        let reading = reading.lease(Lease::Renewed(LEASE)).await.unwrap();
        sleep(LEASE * 3).await;
        let writer = client(&store);
        let writing = tokio::spawn(writer.lock(KEY).mode(LockMode::Write).acquire());
        sleep(Duration::from_millis(10)).await;
        reading.release().await.unwrap();
        let granted = timeout(Duration::from_millis(500), writing).await;
        expect(
            granted.is_ok(),
            "the dead reader is renewed by the living one",
        )
    });
}

/// redis-py, issue 3847: a task that is cancelled in the middle of a command leaves a lock without an owner. There it was
/// the release; here it is the acquisition, whose answer is under way.
#[test]
fn a_cancelled_acquisition_leaves_no_hold() {
    exhibit(Flaw::WithdrawsNothing, async |store| {
        let locks = client(&store);
        store.answering.close();
        let asking = tokio::spawn(locks.lock(KEY).acquire());
        store.answering.reached().await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        store.answering.open();
        sleep(Duration::from_millis(10)).await;
        let free = is_free(&client(&store)).await;
        expect(free, "it is held, and no process knows")
    });
}
