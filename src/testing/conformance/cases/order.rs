//! Waiters are granted in order: promises L3, L5.

use std::sync::Mutex;

use super::*;

pub async fn waiters_of_one_client_are_granted_in_order(env: &Env, mode: LockMode) {
    let (locks, holder) = env.held_here(mode).await;
    in_order(env, holder, mode, &[&locks]).await;
    let holder = env.held_elsewhere(KEY, mode).await;
    in_order(env, holder, mode, &[&locks]).await;
}

pub async fn clients_are_granted_in_order(env: &Env, mode: LockMode) {
    let (one, two, three) = (env.client().await, env.client().await, env.client().await);
    let holder = one.lock(KEY).mode(mode).await.unwrap();
    in_order(env, holder, mode, &[&one, &two, &two, &three]).await;
}

/// Eight requests wait, alternating between these clients, and each holds the lock for a while.
pub(super) async fn in_order(
    env: &Env,
    holder: LockGuard,
    mode: LockMode,
    clients: &[&LockClient],
) {
    const WAITERS: usize = 8;
    let clients = clients.iter().cycle().take(WAITERS);
    let waiters = Waiter::queue_all(env, clients.map(|locks| locks.lock(KEY).mode(mode))).await;
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
pub async fn a_newcomer_does_not_overtake_waiters_elsewhere(env: &Env, mode: LockMode) {
    let holder = env.held_elsewhere(KEY, mode).await;
    let waiter = env.waiter(mode).await;
    holder.release().await.unwrap();
    let newcomer = env.request(mode).await.wait(Duration::ZERO);
    assert_err!(newcomer.await, Busy);
    waiter.promptly().await.release().await.unwrap();
}

pub async fn a_cancelled_waiter_loses_its_place(env: &Env, mode: LockMode) {
    let holder = env.held_elsewhere(KEY, rival(mode)).await;
    let gone = env.waiter(mode).await;
    let next = env.waiter(mode).await;
    let last = env.waiter(mode).await;
    holder.release().await.unwrap();
    // The lock is free, and the waiter that leaves was the next to get it.
    gone.cancel_or_release().await;
    next.promptly().await.release().await.unwrap();
    last.promptly().await.release().await.unwrap();
}

/// A process that is paused while it waits delays the waiters behind it by seconds, and continues to wait
/// afterwards.
pub async fn a_frozen_waiter_delays_the_queue_by_seconds(env: &Env, mode: LockMode) {
    let holder = env.held_elsewhere(KEY, mode).await;
    let frozen = env.frozen(mode).await;
    let next = env.waiter(mode).await;
    holder.release().await.unwrap();
    let released = Instant::now();
    let next = timeout(WAITER_LIVENESS * 2, next.granted()).await;
    let next = next.expect("a dead waiter loses its place");
    assert!(released.elapsed() < WAITER_LIVENESS + Duration::from_secs(2));

    let thawed = frozen.thaw();
    thawed.keeps_waiting(env).await;
    next.release().await.unwrap();
    thawed.granted().await.release().await.unwrap();
}
