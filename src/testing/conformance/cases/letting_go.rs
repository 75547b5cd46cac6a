//! Guards that are dropped and not released.

use super::*;

pub async fn a_dropped_guard_releases(env: &Env, mode: LockMode) {
    let (locks, guard) = env.held_here(mode).await;
    let here = Waiter::queue(env, locks.lock(KEY).mode(rival(mode))).await;
    let elsewhere = env.waiter(rival(mode)).await;
    drop(guard);
    let taking = async |waiter: Waiter| drop(waiter.promptly().await);
    tokio::join!(taking(here), taking(elsewhere));
}

pub async fn a_guard_dropped_outside_a_runtime_releases(env: &Env, mode: LockMode) {
    let guard = env.held_elsewhere(KEY, mode).await;
    let waiter = env.waiter(rival(mode)).await;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    waiter.promptly().await.release().await.unwrap();
}

pub async fn a_panicking_holder_releases(env: &Env, mode: LockMode) {
    let guard = env.held_elsewhere(KEY, mode).await;
    let waiter = env.waiter(rival(mode)).await;
    let panicking = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("a handler that panics"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    waiter.promptly().await.release().await.unwrap();
}

/// The client ends with its last guard, and not before.
pub async fn a_guard_keeps_its_client_alive(env: &Env, mode: LockMode) {
    let (locks, guard) = env.held_here(mode).await;
    env.forget_clients();
    drop(locks);
    assert!(env.is_taken(rival(mode)).await);
    drop(guard);
    let is_free = async || !env.is_taken(rival(mode)).await;
    env.until("the lock is free", is_free).await;
}
