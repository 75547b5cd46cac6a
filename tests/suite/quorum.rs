//! A quorum of five real servers, of which two die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, RedisStore};
use tower_distributed_lock_quorum::QuorumStore;

use crate::redis_store::patient;
use crate::support::{RedisServer, eventually};

const SOON: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(3);

async fn five() -> Vec<RedisServer> {
    join_all((0..5).map(|_| RedisServer::start())).await
}

/// A store that stands for another process. It waits long for silent servers, and not at all for dead ones.
fn store(servers: &[RedisServer]) -> QuorumStore<RedisStore> {
    let stores = servers.iter().map(|server| {
        let store = RedisStore::builder(server.url()).response_timeout(SOON);
        // Lazily: some of them may be dead.
        store.connect_lazy().unwrap()
    });
    QuorumStore::new(stores).unwrap().store_timeout(SOON)
}

fn client(servers: &[RedisServer]) -> LockClient {
    LockClient::new(store(servers))
}

async fn until_nothing_is_left(servers: &[RedisServer]) {
    for server in servers {
        eventually("nothing is left", SOON, async || {
            let keys: Vec<_> = server.dump().await.into_keys().collect();
            // The tombstones of withdrawn attempts expire.
            let keys: Vec<_> = keys
                .into_iter()
                .filter(|key| {
                    !key.starts_with("tower_lock_void:") && !key.starts_with("tower_lock_busy:")
                })
                .collect();
            let channels = server.pubsub_channels().await;
            match keys.is_empty() && channels.is_empty() {
                true => Ok(()),
                false => Err((keys, channels)),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_held_and_waited_for_outlive_two_of_five_servers() {
    let mut servers = five().await;
    let (holder, waiter) = (client(&servers), client(&servers));
    let lease = Lease::Renewed(LEASE);
    let guard = holder.lock("key").lease(lease).await.unwrap();
    let waiting = tokio::spawn(waiter.lock("key").lease(lease).wait(SOON).acquire());
    eventually("the other one listens", SOON, async || {
        !servers[4].pubsub_channels().await.is_empty()
    })
    .await;
    let listener = store(&servers);
    let listens = patient("key", LockMode::Reentrant);
    let mut wakeups = listener.subscribe(&listens).await.unwrap();

    servers[0].kill9();
    servers[1].kill9();
    // Long enough that only renewal by the other three can have kept it.
    tokio::time::sleep(2 * LEASE).await;
    assert!(!guard.is_lost());
    assert!(!waiting.is_finished());

    let early = wakeups.wait().now_or_never();
    assert_eq!(early, None, "it was not free");
    guard.release().await.expect("a majority carried it");
    // A client would ask every second too.
    assert_eq!(timeout(SOON, wakeups.wait()).await, Ok(true));
    drop(wakeups);
    let next = waiting.await.unwrap().expect("its turn came");
    next.release().await.expect("a majority carried it");
    until_nothing_is_left(&servers[2..]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_exclude_each_other_while_two_of_five_servers_die_and_come_back() {
    let mut servers = five().await;
    let inside = Arc::new(AtomicUsize::new(0));
    let grants = Arc::new(AtomicUsize::new(0));
    let unconfirmed = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let locks = client(&servers);
        let (inside, grants, stop) = (inside.clone(), grants.clone(), stop.clone());
        let unconfirmed = unconfirmed.clone();
        tasks.push(tokio::spawn(async move {
            while stop.load(Ordering::SeqCst) == 0 {
                let request = locks.lock("key").lease(Lease::Renewed(SOON / 3));
                let guard = request.wait(SOON).await;
                let guard = guard.expect("a majority is always there");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                tokio::time::sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                if guard.release().await.is_err() {
                    unconfirmed.fetch_add(1, Ordering::SeqCst);
                }
                grants.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let go_on = async |what: &str| {
        let before = grants.load(Ordering::SeqCst);
        eventually(what, SOON, async || {
            grants.load(Ordering::SeqCst) > before + 50
        })
        .await;
    };
    go_on("five serve").await;
    servers[0].kill9();
    go_on("four serve").await;
    servers[1].kill9();
    go_on("three serve").await;
    servers[0].restart().await;
    servers[1].restart().await;
    go_on("five serve again").await;
    stop.store(1, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("no overlap and no failure");
    }
    // A hold that only a majority carried cannot be confirmed when one of these servers dies. One hold existed at
    // each death.
    let unconfirmed = unconfirmed.load(Ordering::SeqCst);
    assert!(unconfirmed <= 2, "{unconfirmed} of {grants:?}");
    until_nothing_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_the_answer_is_unavailable_and_comes_soon() {
    let mut servers = five().await;
    let locks = client(&servers);
    let guard = locks
        .lock("key")
        .lease(Lease::Renewed(LEASE))
        .await
        .unwrap();
    for server in &mut servers[..3] {
        server.kill9();
    }
    tokio::time::timeout(2 * LEASE, guard.lost())
        .await
        .expect("it is not renewed");
    drop(guard);

    let asked = Instant::now();
    let answer = locks.lock("other").wait(SOON).await;
    let Err(LockError::Unavailable(error)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unanswered);
    assert!(asked.elapsed() < SOON / 2, "it waits for no answer");

    servers[0].restart().await;
    eventually("a majority is back", SOON, async || {
        locks.lock("other").wait(Duration::from_secs(1)).await
    })
    .await
    .release()
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_servers_delay_no_request_and_keep_no_hold() {
    let mut servers = five().await;
    let locks = client(&servers);
    locks.lock("key").await.unwrap().release().await.unwrap();
    servers[3].pause();
    servers[4].pause();
    // An attempt may wait for a quarter of the lease.
    let lease = Lease::Renewed(4 * SOON);
    for mode in [LockMode::Write, LockMode::Read, LockMode::Write] {
        let asked = Instant::now();
        let guard = locks.lock("rates").mode(mode).lease(lease);
        guard.await.unwrap().release().await.unwrap();
        let taken = asked.elapsed();
        assert!(taken < SOON / 4, "{taken:?}");
    }
    servers[3].resume();
    servers[4].resume();
    until_nothing_is_left(&servers).await;
}
