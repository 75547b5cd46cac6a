//! How many mutexes a request takes, and what is left of a client.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::LockClient;
use crate::store::memory::MemoryStore;
use crate::sync::LOCKED;

async fn pair(locks: &LockClient, key: &str) {
    let guard = locks.lock(key).await.expect("free");
    guard.release().await.expect("held");
}

/// Two of them are the store's, to grant and to release.
#[tokio::test]
async fn a_free_pair_in_memory_takes_five_mutexes() {
    let locks = LockClient::new(MemoryStore::new());
    pair(&locks, "k").await;
    let before = LOCKED.get();
    pair(&locks, "k").await;
    let taken = LOCKED.get() - before;
    assert_eq!(taken, 5);
}

/// The mutexes of a pair are those of its key and its hold. While the others of the client are locked, a pair is granted and released.
#[tokio::test]
async fn no_mutex_is_the_clients() {
    let locks = LockClient::new(MemoryStore::new());
    pair(&locks, "warm").await;
    let _locked = locks.inner.core.lock_all();
    let (done, is_done) = mpsc::channel();
    let other = locks.clone();
    let runtime = tokio::runtime::Handle::current();
    // In a thread of its own, because one that waits for a mutex cannot be cancelled.
    thread::spawn(move || {
        runtime.block_on(async {
            pair(&other, "k").await;
            drop(other.lock("k").await.expect("free"));
        });
        done.send(()).expect("the test waits");
    });
    is_done
        .recv_timeout(Duration::from_secs(10))
        .expect("a pair takes a mutex of the client");
}

/// The keeper would sleep for an hour, and a program may make a client for each test.
#[tokio::test(start_paused = true)]
async fn the_keeper_ends_with_its_client() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let store = MemoryStore::new();
    let locks = LockClient::new(store.clone());
    pair(&locks, "k").await;
    // The keeper sleeps.
    others_run().await;
    let before = metrics.num_alive_tasks();
    drop(locks);
    others_run().await;
    assert_eq!(metrics.num_alive_tasks() + 1, before);
}

async fn others_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}
