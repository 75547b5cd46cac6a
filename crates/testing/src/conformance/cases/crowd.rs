//! Many requests at once: promise L2.

use super::*;

/// Every request in a crowd is granted eventually.
pub async fn every_request_of_a_crowd_is_granted(env: &Harness) {
    const TASKS: usize = 64;
    let site = CriticalSection::default();
    let mut crowd = JoinSet::new();
    for process in env.both() {
        for task in 0..TASKS {
            // Every fourth request has the other mode.
            let request = match task % 4 {
                0 => process.rival(),
                _ => process.request(),
            };
            let site = site.clone();
            crowd.spawn(async move {
                let guard = request.await.unwrap();
                site.work(guard.mode(), Duration::from_micros(100)).await;
                drop(guard);
            });
        }
    }
    let all = timeout(env.prompt() * 20, crowd.join_all()).await;
    assert_eq!(all.expect("all are served").len(), 2 * TASKS);
}

/// A busy process hands the lock over to its own requests, but not for ever.
pub async fn a_busy_process_leaves_the_lock_to_others(env: &Harness) {
    let mut busy = busy(&[&env.here], env.mode, [env.moment / 10; 4]);
    for _ in 0..5 {
        granted_within(env.prompt() * 5, env.elsewhere.rival()).await;
    }
    busy.shutdown().await;
}

/// Two processes ask for the lock continuously, and each gets its share.
pub async fn each_of_two_busy_processes_gets_its_share(env: &Harness) {
    // A few turns of each.
    const GRANTS: usize = 96;
    let least = least_share(env, [4, 4], GRANTS).await;
    assert!(least >= GRANTS / 6, "{least} of {GRANTS}");
}

/// In two processes. A `Reentrant` and a `Fair` waiter need not be woken by each other.
pub async fn each_release_wakes_the_next_waiter(env: &Harness) {
    let holder = env.process().await.request().await.unwrap();
    let requests = env.both().into_iter().flat_map(|process| match env.mode {
        // Only modes that the holder excludes.
        LockMode::Read => vec![process.rival()],
        _ => vec![process.request(), process.rival()],
    });
    let waiters = env.all_wait(requests).await;
    holder.release().await.unwrap();
    let served = join_all(waiters.into_iter().map(Waiter::serve));
    // The end of a `Reentrant` hold, the first one's or a waiter's, wakes no `Fair` waiter: the first of them polls within
    // a second.
    let unwoken = match env.mode {
        LockMode::Reentrant | LockMode::Fair => Duration::from_secs(3),
        LockMode::Read | LockMode::Write | LockMode::Permit(_) => Duration::ZERO,
    };
    let all = timeout(env.prompt() * 2 + unwoken, served).await;
    all.expect("each release wakes the next");
}
