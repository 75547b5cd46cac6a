//! All operations at once, on several threads.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::{LockClient, LockError, LockGuard, LockMode, MemoryStore, Owner};
use tower_distributed_lock_testing::conformance::CriticalSection;
use tower_distributed_lock_testing::{Fault, Faults, FaultyStore};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// The duration of the test.
const TIME: Duration = Duration::from_millis(1200);

#[test]
fn exclusive_locks_never_overlap_in_random_operations() {
    storm([LockMode::Reentrant, LockMode::Fair]);
}

#[test]
fn read_write_locks_never_overlap_in_random_operations() {
    storm([LockMode::Read, LockMode::Write]);
}

/// Tasks on four threads ask for one key or several in every mode of the family, alone or as one of two tasks with the
/// same owner, and release, drop or cancel. Excluding holds never overlap, every task makes progress, and nothing is
/// left.
fn storm(family: [LockMode; 2]) {
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .expect("a runtime");
    threads.block_on(async {
        let store = MemoryStore::new();
        let sites = [
            CriticalSection::default(),
            CriticalSection::default(),
            CriticalSection::default(),
        ];
        let until = Instant::now() + TIME;
        let (mut clients, mut blowing) = (Vec::new(), JoinSet::new());
        let slow = Faults::none()
            .chance(Fault::Slow, 1.0)
            .delay(Duration::from_millis(1));
        let far = FaultyStore::new(store.clone(), slow, fastrand::u64(..));
        for locks in [LockClient::new(store.clone()), LockClient::new(far)] {
            clients.push(locks.clone());
            for _ in 0..8 {
                let (locks, sites, owner) = (locks.clone(), sites.clone(), Owner::new());
                for _ in 0..2 {
                    blowing.spawn(blow(
                        until,
                        family,
                        locks.clone(),
                        sites.clone(),
                        owner.clone(),
                    ));
                }
            }
        }
        let grants: usize = blowing.join_all().await.into_iter().sum();
        assert!(grants > 30, "only {grants} grants: nothing was torn at");
        let calm = async {
            while !store.is_empty() || clients.iter().any(|locks| locks.keys_in_use() > 0) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let calm = timeout(Duration::from_secs(2), calm).await;
        calm.expect("nothing is left");
    });
}

/// Makes requests, and returns how many were granted.
async fn blow(
    until: Instant,
    family: [LockMode; 2],
    locks: LockClient,
    sites: [CriticalSection; 3],
    owner: Owner,
) -> usize {
    let mut grants = 0;
    while Instant::now() < until {
        let mode = family[fastrand::usize(..2)];
        let key = fastrand::usize(..KEYS.len());
        let (asking, alone) = match fastrand::u8(..8) {
            0 => (locks.lock_all(KEYS), true),
            1 => (locks.lock_any(KEYS), true),
            2..4 => (locks.lock(KEYS[key]).owner(&owner), false),
            _ => (locks.lock(KEYS[key]), true),
        };
        let asking = asking.mode(mode).wait(Duration::from_secs(20));
        let patience = match fastrand::bool() {
            true => Duration::from_secs(30),
            false => Duration::from_micros(fastrand::u64(..3000)),
        };
        let guard = match timeout(patience, asking.into_future()).await {
            Err(_) | Ok(Err(LockError::Upgrade)) => continue,
            Ok(granted) => granted.expect("every request is granted"),
        };
        grants += 1;
        match alone {
            true => work(&guard, mode, &sites).await,
            // The other task of the same owner may hold the key.
            false => sleep(Duration::from_micros(100)).await,
        }
        match fastrand::bool() {
            true => guard.release().await.expect("nothing is lost"),
            false => drop(guard),
        }
    }
    grants
}

async fn work(guard: &LockGuard, mode: LockMode, sites: &[CriticalSection; 3]) {
    let time = Duration::from_micros(fastrand::u64(..500));
    if guard.keys().count() > 1 {
        let [a, b, c] = sites;
        tokio::join!(a.work(mode, time), b.work(mode, time), c.work(mode, time));
        return;
    }
    let site = KEYS.iter().position(|key| *key == guard.key().as_str());
    sites[site.expect("it holds one of the keys")]
        .work(mode, time)
        .await;
}
