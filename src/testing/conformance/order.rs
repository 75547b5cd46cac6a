//! Waiters are granted in order: promises L3, L5.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::store::WAITER_LIVENESS;
use crate::{LockClient, LockError, LockGuard, LockMode};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::env::Env;
use super::waiter::Waiter;
use super::{KEY, rival};

pub async fn waiters_of_one_client_are_granted_in_order(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let holder = locks.lock(KEY).mode(mode).await.unwrap();
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
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut working = JoinSet::new();
    for (n, locks) in (0..WAITERS).zip(clients.iter().cycle()) {
        let waiter = Waiter::queue(env, locks.lock(KEY).mode(mode)).await;
        let order = order.clone();
        working.spawn(async move {
            let guard = waiter.granted().await;
            order.lock().unwrap().push(n);
            guard.release().await.unwrap();
        });
    }
    holder.release().await.unwrap();
    working.join_all().await;
    assert_eq!(*order.lock().unwrap(), Vec::from_iter(0..WAITERS));
}

/// No other request waits in the process of the newcomer.
pub async fn a_newcomer_does_not_overtake_waiters_elsewhere(env: &Env, mode: LockMode) {
    let holder = env.held_elsewhere(KEY, mode).await;
    let waiter = Waiter::queue(env, env.client().await.lock(KEY).mode(mode)).await;
    holder.release().await.unwrap();
    let newcomer = env.client().await.lock(KEY).mode(mode).wait(Duration::ZERO);
    let newcomer = newcomer.await;
    assert!(
        matches!(newcomer, Err(LockError::Busy { .. })),
        "{newcomer:?}"
    );
    waiter.promptly().await.release().await.unwrap();
}

pub async fn a_cancelled_waiter_loses_its_place(env: &Env, mode: LockMode) {
    let holder = env.held_elsewhere(KEY, rival(mode)).await;
    let gone = Waiter::queue(env, env.client().await.lock(KEY).mode(mode)).await;
    let next = Waiter::queue(env, env.client().await.lock(KEY).mode(mode)).await;
    let last = Waiter::queue(env, env.client().await.lock(KEY).mode(mode)).await;
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
    let frozen = Waiter::queue_frozen(env, env.client().await.lock(KEY).mode(mode)).await;
    let next = Waiter::queue(env, env.client().await.lock(KEY).mode(mode)).await;
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
