//! Many requests at once: promise L2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::LockMode;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use super::env::Env;
use super::site::Site;
use super::waiter::Waiter;
use super::{KEY, rival};

/// Every request in a crowd is granted eventually.
pub async fn every_request_of_a_crowd_is_granted(env: &Env, mode: LockMode) {
    const TASKS: usize = 64;
    let site = Site::default();
    let mut crowd = JoinSet::new();
    for locks in [env.client().await, env.client().await] {
        for task in 0..TASKS {
            let (locks, site) = (locks.clone(), site.clone());
            // Every fourth request has the other mode.
            let mode = if task % 4 == 0 { rival(mode) } else { mode };
            crowd.spawn(async move {
                let guard = locks.lock(KEY).mode(mode).await.unwrap();
                site.work(mode, Duration::from_micros(100)).await;
                drop(guard);
            });
        }
    }
    let all = timeout(env.prompt() * 20, crowd.join_all()).await;
    assert_eq!(all.expect("all are served").len(), 2 * TASKS);
}

/// A busy process hands the lock over to its own requests, but not for ever.
pub async fn a_busy_process_leaves_the_lock_to_others(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let mut busy = JoinSet::new();
    for _ in 0..4 {
        let (locks, moment) = (locks.clone(), env.moment());
        busy.spawn(async move {
            loop {
                let guard = locks.lock(KEY).mode(mode).await.unwrap();
                sleep(moment / 10).await;
                guard.release().await.unwrap();
            }
        });
    }
    let other = env.client().await;
    for _ in 0..5 {
        let asked = Instant::now();
        let guard = other.lock(KEY).mode(rival(mode)).await.unwrap();
        assert!(
            asked.elapsed() < env.prompt() * 5,
            "starved for {:?}",
            asked.elapsed()
        );
        guard.release().await.unwrap();
    }
    busy.shutdown().await;
}

/// Two processes ask for the lock continuously, and each gets its share.
pub async fn each_of_two_busy_processes_gets_its_share(env: &Env, mode: LockMode) {
    // A few turns of each.
    const GRANTS: usize = 96;
    let grants = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut busy = JoinSet::new();
    for process in 0..2 {
        let locks = env.client().await;
        for _ in 0..4 {
            let (locks, grants) = (locks.clone(), grants.clone());
            busy.spawn(async move {
                while grants
                    .iter()
                    .map(|n| n.load(Ordering::SeqCst))
                    .sum::<usize>()
                    < GRANTS
                {
                    let guard = locks.lock(KEY).mode(mode).await.unwrap();
                    grants[process].fetch_add(1, Ordering::SeqCst);
                    // In memory there may be no other wait, and the other tasks would never run.
                    yield_now().await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    busy.join_all().await;
    let shares = [0, 1].map(|process| grants[process].load(Ordering::SeqCst));
    assert!(
        shares.iter().all(|share| *share >= GRANTS / 6),
        "{shares:?}"
    );
}

/// In two processes. A `Reentrant` and a `Fair` waiter need not be woken by each other.
pub async fn each_release_wakes_the_next_waiter(env: &Env, mode: LockMode) {
    let guard = env.held_elsewhere(KEY, mode).await;
    let mut waiters = Vec::new();
    for locks in [env.client().await, env.client().await] {
        for waiting in [mode, rival(mode)] {
            // Only modes that the holder excludes.
            if waiting != LockMode::Read || mode != LockMode::Read {
                waiters.push(Waiter::queue(env, locks.lock(KEY).mode(waiting)).await);
            }
        }
    }
    guard.release().await.unwrap();
    let mut served = JoinSet::new();
    for waiter in waiters {
        served.spawn(async move { drop(waiter.granted().await) });
    }
    // The end of a `Reentrant` hold, the first one's or a waiter's, wakes no `Fair` waiter: the first of them polls within
    // a second.
    let unwoken = match mode {
        LockMode::Reentrant | LockMode::Fair => Duration::from_secs(3),
        LockMode::Read | LockMode::Write | LockMode::Permit(_) => Duration::ZERO,
    };
    let all = timeout(env.prompt() * 2 + unwoken, served.join_all()).await;
    all.expect("each release wakes the next");
}
