//! Bugs of waiters.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, LockStore, WAITER_LIVENESS};
use tower_distributed_lock::{LockClient, LockMode};
use uuid::Uuid;

use super::{KEY, client, exhibit, expect};
use crate::support::{Flaw, Flawed};

/// Redisson, issue 5761: locks missed the message of an unlock, and waited for a timeout, or for ever.
///
/// The lock becomes free between a waiter's question and its subscription: no message wakes the waiter.
#[test]
fn no_wake_up_is_lost_between_try_and_subscribe() {
    exhibit(Flaw::SleepsAfterSubscribing, async |store| {
        let (holder, waiter) = (client(&store), client(&store));
        let guard = holder.lock(KEY).await.unwrap();
        store.subscribing.close();
        let waiting = tokio::spawn(waiter.lock(KEY).acquire());
        store.subscribing.reached().await;
        guard.release().await.unwrap();
        store.subscribing.open();
        // Sooner than the poll, which would also find the free lock.
        let granted = timeout(Duration::from_millis(500), waiting).await;
        expect(granted.is_ok(), "the lock is free, and its waiter sleeps")
    });
}

/// Redisson, pull requests 3166 to 3202: threads that had died in the queue of a fair lock blocked a free lock, each
/// for as long as it would have waited.
#[test]
fn a_dead_head_delays_a_fair_queue_by_seconds() {
    exhibit(Flaw::HonoursTheDead, async |store| {
        let fair = |locks: &LockClient| locks.lock(KEY).mode(LockMode::Fair);
        let (holder, waiter) = (client(&store), client(&store));
        let guard = fair(&holder).await.unwrap();
        queue_and_die(&store).await;
        let waiting = tokio::spawn(fair(&waiter).acquire());
        sleep(Duration::from_millis(10)).await;
        guard.release().await.unwrap();
        let limit = WAITER_LIVENESS + Duration::from_secs(2);
        let granted = timeout(limit, waiting).await;
        expect(
            granted.is_ok(),
            "the lock is free, and the dead are waited for",
        )
    });
}

/// Asks once, and never again.
async fn queue_and_die(store: &Flawed) {
    let hold = Hold {
        key: KEY.into(),
        mode: LockMode::Fair,
        id: HoldId::new(Uuid::from_u128(1), 1),
    };
    let attempt = Attempt::new(hold, Duration::from_secs(30)).patience(Duration::from_secs(300));
    store.acquire(&attempt).await.unwrap();
}
