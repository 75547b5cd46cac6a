//! Waiters are granted in order: promises L3, L5.

use std::sync::Mutex;

use super::*;

pub async fn waiters_of_one_client_are_granted_in_order(env: &Harness) {
    for holder in env.both() {
        let holder = holder.request().await.unwrap();
        in_order(env, holder, &[&env.here]).await;
    }
}

pub async fn clients_are_granted_in_order(env: &Harness) {
    let ([one, two], three) = (env.both(), &env.process().await);
    let holder = one.request().await.unwrap();
    in_order(env, holder, &[one, two, two, three]).await;
}

/// Eight requests wait, alternating between these processes, and each holds the lock for a while.
pub(super) async fn in_order(env: &Harness, holder: LockGuard, processes: &[&Process]) {
    const WAITERS: usize = 8;
    let requests = processes.iter().map(|process| process.request());
    let waiters = env.all_wait(requests.cycle().take(WAITERS)).await;
    let order = Mutex::new(Vec::new());
    let working = waiters.into_iter().enumerate().map(async |(n, waiter)| {
        let guard = waiter.granted().await;
        order.lock().unwrap().push(n);
        guard.release().await.unwrap();
    });
    holder.release().await.unwrap();
    join_all(working).await;
    assert_eq!(order.into_inner().unwrap(), Vec::from_iter(0..WAITERS));
}

/// No other request waits in the process of the newcomer.
pub async fn a_newcomer_does_not_overtake_waiters_elsewhere(env: &Harness) {
    let holder = env.here.request().await.unwrap();
    let waiter = env.waits(env.elsewhere.request()).await;
    holder.release().await.unwrap();
    is_refused(env.process().await.request()).await;
    waiter.serve_promptly().await;
}

pub async fn a_cancelled_waiter_loses_its_place(env: &Harness) {
    let holder = env.process().await.rival().await.unwrap();
    let gone = env.waits(env.here.request()).await;
    let next = env.waits(env.elsewhere.request()).await;
    let last = env.waiter(env.mode).await;
    holder.release().await.unwrap();
    // The lock is free, and the waiter that leaves was the next to get it.
    gone.cancel_or_release().await;
    next.serve_promptly().await;
    last.serve_promptly().await;
}

/// Both locks have one name.
pub async fn a_plain_release_wakes_the_first_in_the_queue(env: &Harness) {
    let plain = env.here.request().mode(LockMode::Reentrant).await.unwrap();
    let first = env.waits(env.elsewhere.request()).await;
    let next = env.waiter(env.mode).await;
    plain.release().await.unwrap();
    first.serve_promptly().await;
    next.serve_promptly().await;
}

/// A process that is paused while it waits delays the waiters behind it by seconds, and continues to wait
/// afterwards.
pub async fn a_frozen_waiter_delays_the_queue_by_seconds(env: &Harness) {
    let holder = env.here.request().await.unwrap();
    let frozen = env.frozen().await;
    let next = env.waits(env.elsewhere.request()).await;
    holder.release().await.unwrap();
    let released = Instant::now();
    let next = timeout(WAITER_LIVENESS * 2, next.granted()).await;
    let next = next.expect("a dead waiter loses its place");
    assert!(released.elapsed() < WAITER_LIVENESS + Duration::from_secs(2));

    let thawed = frozen.thaw();
    thawed.keeps_waiting(env).await;
    next.release().await.unwrap();
    thawed.serve().await;
}
