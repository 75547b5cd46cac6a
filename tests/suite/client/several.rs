//! Several keys in one request.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_distributed_lock::{LockClient, LockError, LockMode, MemoryStore, Owner};

use crate::layer::store::TestStore;

/// The caller would believe that it holds both.
#[tokio::test]
async fn modes_of_one_key_that_contradict_each_other_are_refused() {
    let locks = LockClient::new(MemoryStore::new());
    for (one, other) in [
        (LockMode::Read, LockMode::permits(3)),
        (LockMode::Fair, LockMode::Write),
        (LockMode::permits(2), LockMode::permits(3)),
    ] {
        for all in [true, false] {
            let keys = [("k", one), ("other", LockMode::Fair), ("k", other)];
            let request = match all {
                true => locks.lock_all(keys),
                false => locks.lock_any(keys),
            };
            let refused = request.await;
            assert!(
                matches!(refused, Err(LockError::Invalid(_))),
                "{one:?} and {other:?}: {refused:?}"
            );
        }
    }
    let both = locks.lock_all([("k", LockMode::Read), ("k", LockMode::Write)]);
    let both = both.await.expect("a writer may read");
    assert_eq!(both.mode(), LockMode::Write);
    both.release().await.expect("held");
}

/// It was granted both, one after the other, and took neither: it lost the first, and could not be given the second.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_polled_waits_again_for_every_key() {
    let store = MemoryStore::new();
    let (locks, others) = (LockClient::new(store.clone()), LockClient::new(store));
    let one = others.lock("one").await.expect("free");
    let other = others.lock("other").await.expect("free");
    let mut either = locks.lock_any(["one", "other"]).into_future();
    let polled = poll_fn(|context| Poll::Ready(either.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "it did not wait: {polled:?}");
    sleep(Duration::from_millis(10)).await;
    for holder in [one, other] {
        holder.release().await.expect("held");
        sleep(Duration::from_millis(50)).await;
    }
    let one = timeout(Duration::from_secs(2), others.lock("one")).await;
    let one = one.expect("its grant was taken away").expect("free");
    let granted = timeout(Duration::from_secs(2), either).await;
    let granted = granted.expect("the other key is free").expect("free");
    assert_eq!(granted.key().as_str(), "other");
    drop(one);
}

/// Its wait for the key that was in use does not count: the readers of the other one may have come since.
#[tokio::test(start_paused = true)]
async fn a_request_for_all_shares_no_read_that_is_older_than_the_share_window() {
    let store = MemoryStore::new();
    let (locks, others) = (LockClient::new(store.clone()), LockClient::new(store));
    let holder = others.lock("a").mode(LockMode::Write).await.expect("free");
    let both = locks.lock_all([("a", LockMode::Write), ("b", LockMode::Read)]);
    let both = tokio::spawn(both.acquire());
    sleep(Duration::from_secs(1)).await;
    let read = locks.lock("b").mode(LockMode::Read).await.expect("free");
    sleep(Duration::from_secs(1)).await;
    holder.release().await.expect("held");
    let both = both.await.expect("no panic").expect("both are free");
    let admin = locks.admin().expect("a memory store");
    let found = admin.inspect("b").await.expect("it answers");
    assert_eq!(found.holders.len(), 2, "it asked for a read of its own");
    drop((both, read));
}

/// Another process is next for the key that was in use, so that a request which gives it up waits again.
#[tokio::test(start_paused = true)]
async fn a_request_for_all_has_its_longest_hold_from_the_grant_on() {
    let store = MemoryStore::new();
    let [locks, holder, next] = [(); 3].map(|()| LockClient::new(store.clone()));
    let owner = Owner::new();
    let _outer = locks.lock("b").owner(&owner).await.expect("free");
    let held = holder.lock("a").await.expect("free");
    let both = locks.lock_all(["a", "b"]).owner(&owner);
    let both = both.max_hold(Duration::from_secs(1));
    let both = tokio::spawn(both.wait(Duration::from_secs(10)).acquire());
    sleep(Duration::from_millis(100)).await;
    let _next = tokio::spawn(next.lock("a").acquire());
    sleep(Duration::from_secs(3)).await;
    held.release().await.expect("held");
    let both = timeout(Duration::from_secs(1), both).await;
    let both = both.expect("both are free").expect("no panic");
    let both = both.expect("it was its turn");
    assert!(!both.is_lost());
}

/// One key is handed over inside the process, while the store is silent about the other.
#[tokio::test(start_paused = true)]
async fn a_request_for_one_of_several_keys_takes_what_it_gets_before_the_store_answers() {
    let store = TestStore::default();
    let locks = LockClient::new(store.clone());
    let holder = locks.lock("held").await.expect("free");
    store.silence(true);
    let either = tokio::spawn(locks.lock_any(["held", "other"]).acquire());
    sleep(Duration::from_millis(10)).await;
    drop(holder);
    let granted = timeout(Duration::from_millis(10), either).await;
    let granted = granted.expect("it is handed over").expect("no panic");
    assert_eq!(granted.expect("granted").key().as_str(), "held");
    store.silence(false);
}
