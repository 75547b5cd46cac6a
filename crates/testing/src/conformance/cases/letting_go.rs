//! Guards that are dropped and not released.

use super::*;

pub async fn a_dropped_guard_releases(env: &Harness) {
    let guard = env.here.request().await.unwrap();
    let here = env.waits(env.here.rival()).await;
    let elsewhere = env.waits(env.elsewhere.rival()).await;
    drop(guard);
    let taking = async |waiter: Waiter| drop(waiter.promptly().await);
    tokio::join!(taking(here), taking(elsewhere));
}

pub async fn a_guard_dropped_outside_a_runtime_releases(env: &Harness) {
    let guard = env.here.request().await.unwrap();
    let waiter = env.waits(env.elsewhere.rival()).await;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    waiter.serve_promptly().await;
}

pub async fn a_panicking_holder_releases(env: &Harness) {
    let guard = env.here.request().await.unwrap();
    let waiter = env.waits(env.elsewhere.rival()).await;
    let panicking = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("a handler that panics"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    waiter.serve_promptly().await;
}

/// The client ends with its last guard, and not before.
pub async fn a_guard_keeps_its_client_alive(env: &Harness) {
    let guard = env.process().await.request().await.unwrap();
    env.forget_processes();
    assert!(env.is_taken().await);
    drop(guard);
    let is_free = async || !env.is_taken().await;
    env.until("the lock is free", is_free).await;
}
