//! A minimum hold: the key stays taken after the release, and after the end of its process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, MemoryStore};

use crate::layer::store::TestStore;
use crate::support::{Site, eventually};

/// Longer than the steps of a test on a busy machine.
const MINIMUM: Duration = Duration::from_secs(4);
const SOON: Duration = Duration::from_secs(30);

async fn is_taken(locks: &LockClient, key: &str) -> bool {
    match locks.lock(key).wait(Duration::ZERO).await {
        Ok(guard) => {
            guard.release().await.unwrap();
            false
        }
        Err(LockError::Busy { .. }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// Waits until the key is free, and says how long that took since `began`.
async fn freed(locks: &LockClient, key: &str, began: Instant) -> Duration {
    eventually("the key is free", SOON, async || {
        match is_taken(locks, key).await {
            true => Err("taken"),
            false => Ok(()),
        }
    })
    .await;
    began.elapsed()
}

/// How a hold ends before its minimum is over.
#[derive(Debug, Clone, Copy)]
enum End {
    Release,
    Drop,
    /// After the guard was released.
    Shutdown,
    /// While the guard exists.
    ShutdownBefore,
}

async fn keeps(site: &Site, end: End) {
    let key = format!("minimum:{end:?}");
    let other = site.client().await;
    // A lease that is longer: a process that goes on ends the hold at its minimum.
    let lease = match end {
        End::Release | End::Drop => Lease::Renewed(Duration::from_secs(60)),
        End::Shutdown | End::ShutdownBefore => Lease::Renewed(MINIMUM / 2),
    };
    let began = Instant::now();
    let locks = site.client().await;
    let guard = locks.lock(&key).lease(lease).await.unwrap();
    guard.hold_at_least(MINIMUM).await.unwrap();
    let what = format!("{} {end:?}", site.name());
    match end {
        End::Release => {
            guard.release().await.unwrap();
            assert!(began.elapsed() < MINIMUM, "{what}: a release does not wait");
            assert!(
                is_taken(&locks, &key).await,
                "{what}: for its own process too"
            );
        }
        End::Drop => drop(guard),
        End::Shutdown => {
            guard.release().await.unwrap();
            locks.shutdown(SOON).await.unwrap();
            assert!(
                began.elapsed() < MINIMUM,
                "{what}: a shutdown does not wait"
            );
        }
        End::ShutdownBefore => {
            locks.shutdown(SOON).await.unwrap();
            assert!(guard.is_lost(), "{what}");
            drop(guard);
        }
    }
    assert!(is_taken(&other, &key).await, "{what}");
    let held = freed(&other, &key, began).await;
    assert!(
        held + Duration::from_millis(50) >= MINIMUM,
        "{what}: {held:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_stays_taken_for_the_rest_after_the_release() {
    let sites = Site::all().await;
    let cases = sites.iter().flat_map(|site| {
        [End::Release, End::Drop, End::Shutdown, End::ShutdownBefore].map(|end| keeps(site, end))
    });
    join_all(cases).await;
}

#[test]
fn the_key_stays_taken_when_its_process_ends() {
    let outer = tokio::runtime::Runtime::new().unwrap();
    let sites = outer.block_on(Site::all());
    let began = Instant::now();
    for site in &sites {
        if matches!(site, Site::Quorum(_)) {
            // Its tasks are on the runtime of its caller: there is no other store with these members.
            continue;
        }
        // All that a process does ends with its runtime.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let locks = site.client().await;
            let lease = Lease::Renewed(MINIMUM / 2);
            let request = locks.lock("minimum:ended").lease(lease);
            let guard = request.await.unwrap();
            guard.hold_at_least(MINIMUM).await.unwrap();
            guard.release().await.unwrap();
        });
        drop(runtime);
    }
    outer.block_on(async {
        let sites = sites.iter().filter(|site| !matches!(site, Site::Quorum(_)));
        // At the same time: each of them waits until the minimum is over.
        let checks = sites.map(async |site| {
            let other = site.client().await;
            assert!(is_taken(&other, "minimum:ended").await, "{}", site.name());
            let held = freed(&other, "minimum:ended", began).await;
            let what = site.name();
            assert!(
                held + Duration::from_millis(50) >= MINIMUM,
                "{what}: {held:?}"
            );
        });
        join_all(checks).await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_passed_on_has_its_minimum_too() {
    let store = MemoryStore::new();
    let (locks, other) = (LockClient::new(store.clone()), LockClient::new(store));
    let short = Lease::Renewed(Duration::from_secs(3));
    let first = locks.lock("k").lease(short).await.unwrap();
    let minimum = Duration::from_secs(50);
    let waiting = tokio::spawn(locks.lock("k").lease(short).acquire());
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    next.hold_at_least(minimum).await.unwrap();
    next.release().await.unwrap();
    let began = tokio::time::Instant::now();
    let next = other.lock("k").wait(minimum * 2).await.unwrap();
    let waited = began.elapsed();
    assert!(waited > minimum - Duration::from_secs(1), "{waited:?}");
    assert!(waited < minimum + Duration::from_secs(2), "{waited:?}");
    drop(next);
}

/// The store keeps it for so long, and the renewals, which are for less, do not shorten that.
#[tokio::test(start_paused = true)]
async fn a_kept_hold_is_not_lost_while_the_store_is_silent() {
    let store = TestStore::default();
    let locks = LockClient::new(store.clone());
    let guard = locks.lock("k").await.unwrap();
    let minimum = Duration::from_secs(600);
    guard.hold_at_least(minimum).await.unwrap();
    let until = guard.deadline();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(guard.deadline() >= until, "a renewal moved it back");
    store.silence(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!guard.is_lost());
    store.silence(false);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_cannot_be_kept_is_lost_at_once() {
    let locks = LockClient::new(MemoryStore::new());
    let guard = locks.lock("k").await.unwrap();
    locks.admin().unwrap().force_unlock("k").await.unwrap();
    let kept = guard.hold_at_least(Duration::from_secs(5)).await;
    assert!(matches!(kept, Err(LockError::Lost)), "{kept:?}");
    assert!(guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_minimum_that_is_over_changes_nothing_and_a_lost_hold_is_not_kept() {
    let store = MemoryStore::new();
    let locks = LockClient::new(store.clone());
    let take = async || {
        let guard = locks.lock("k").await.unwrap();
        guard.hold_at_least(Duration::from_secs(5)).await.unwrap();
        guard
    };
    let guard = take().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    guard.release().await.unwrap();
    assert!(!is_taken(&locks, "k").await);

    let guard = take().await;
    locks.admin().unwrap().force_unlock("k").await.unwrap();
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    assert!(!is_taken(&locks, "k").await);
    assert_eq!(locks.keys_in_use(), 0);
    assert!(store.is_empty());
}

#[tokio::test]
async fn a_minimum_that_contradicts_the_request_is_refused() {
    let locks = LockClient::new(MemoryStore::new());
    let minute = Duration::from_secs(60);
    let request = || locks.lock("k");
    for short in [
        request().mode(LockMode::Read),
        request().lease(Lease::Fixed(minute / 2)),
        request().max_hold(minute / 2),
    ] {
        let refused = short.run_at_least(minute, async |_| panic!("it must not run"));
        let refused: Result<(), _> = refused.await;
        assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
        tokio::task::yield_now().await;
    }
    let long = request().mode(LockMode::Write).lease(Lease::Fixed(minute));
    long.run_at_least(minute, async |_| ()).await.unwrap();
}

/// Three processes whose clocks differ by up to 40 s wake once a minute by their own clock.
#[tokio::test(start_paused = true)]
async fn a_job_runs_once_per_tick_although_clocks_differ() {
    const TICK: Duration = Duration::from_secs(60);
    const TICKS: usize = 10;
    for minimum in [Duration::from_secs(45), Duration::ZERO] {
        let store = MemoryStore::new();
        let runs = Arc::new(AtomicUsize::new(0));
        let processes = [0, 15, 40].map(|late| {
            let (locks, runs) = (LockClient::new(store.clone()), runs.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(late)).await;
                let mut ticks = tokio::time::interval(TICK);
                for _ in 0..TICKS {
                    ticks.tick().await;
                    let job = locks.lock("job").wait(Duration::ZERO);
                    let ran = job.run_at_least(minimum, async |_| {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        runs.fetch_add(1, Ordering::Relaxed);
                    });
                    match ran.await {
                        Ok(()) | Err(LockError::Busy { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        });
        for process in processes {
            process.await.unwrap();
        }
        let expected = match minimum.is_zero() {
            // What the minimum is for.
            true => 3 * TICKS,
            false => TICKS,
        };
        assert_eq!(runs.load(Ordering::Relaxed), expected);
    }
}
