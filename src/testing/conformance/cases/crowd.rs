//! Many requests at once: promise L2.

use super::*;

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
    let times = [env.moment / 10; 4];
    let mut busy = busy(&[env.client().await], mode, &times);
    let other = env.request(rival(mode)).await;
    for _ in 0..5 {
        granted_within(env.prompt() * 5, other.clone()).await;
    }
    busy.shutdown().await;
}

/// Two processes ask for the lock continuously, and each gets its share.
pub async fn each_of_two_busy_processes_gets_its_share(env: &Env, mode: LockMode) {
    // A few turns of each.
    const GRANTS: usize = 96;
    let shares = shares(env, mode, [4, 4], GRANTS).await;
    let least = shares.iter().min();
    assert!(least >= Some(&(GRANTS / 6)), "{shares:?}");
}

/// In two processes. A `Reentrant` and a `Fair` waiter need not be woken by each other.
pub async fn each_release_wakes_the_next_waiter(env: &Env, mode: LockMode) {
    let guard = env.held_elsewhere(KEY, mode).await;
    // Only modes that the holder excludes.
    let modes = [mode, rival(mode)].into_iter();
    let modes = modes.filter(|waiting| (*waiting, mode) != (LockMode::Read, LockMode::Read));
    let mut waiters = Vec::new();
    for locks in [env.client().await, env.client().await] {
        let waiting = modes.clone().map(|waiting| locks.lock(KEY).mode(waiting));
        waiters.extend(Waiter::queue_all(env, waiting).await);
    }
    guard.release().await.unwrap();
    let served = join_all(waiters.into_iter().map(Waiter::serve));
    // The end of a `Reentrant` hold, the first one's or a waiter's, wakes no `Fair` waiter: the first of them polls within
    // a second.
    let unwoken = match mode {
        LockMode::Reentrant | LockMode::Fair => Duration::from_secs(3),
        LockMode::Read | LockMode::Write | LockMode::Permit(_) => Duration::ZERO,
    };
    let all = timeout(env.prompt() * 2 + unwoken, served).await;
    all.expect("each release wakes the next");
}
