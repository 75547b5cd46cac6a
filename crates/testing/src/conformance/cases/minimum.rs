//! The minimum of a hold: [`LockGuard::hold_at_least`](tower_distributed_lock::LockGuard::hold_at_least).

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// A hold with a minimum, and the instant before which no other request is granted.
async fn take(env: &Harness, process: &Process) -> (LockGuard, Instant) {
    let minimum = env.short_lease();
    // The store counts whole milliseconds.
    let until = Instant::now() + minimum - Duration::from_millis(2);
    let guard = process.request().await.unwrap();
    guard.hold_at_least(minimum).await.unwrap();
    (guard, until)
}

async fn waits(env: &Harness, process: &Process) -> Waiter {
    let patient = process.request().wait(Duration::from_secs(60));
    env.waits(patient).await
}

/// The request is granted when the minimum is over.
async fn granted_after(until: Instant, waiter: Waiter) {
    let guard = waiter.granted().await;
    assert!(Instant::now() >= until, "within the minimum");
    guard.release().await.unwrap();
}

/// The key stays taken, for its own client too.
pub async fn a_minimum_ends_with_its_guard(env: &Harness) {
    for is_dropped in [false, true] {
        let (guard, until) = take(env, &env.here).await;
        let own = waits(env, &env.here).await;
        let other = waits(env, &env.elsewhere).await;
        match is_dropped {
            true => drop(guard),
            false => guard.release().await.unwrap(),
        }
        tokio::join!(granted_after(until, own), granted_after(until, other));
    }
}

/// The key stays taken, whether the client ends before the guard or after it.
pub async fn a_minimum_ends_with_its_client(env: &Harness) {
    for guard_is_first in [true, false] {
        let ending = env.process().await;
        let (guard, until) = take(env, &ending).await;
        let other = waits(env, &env.here).await;
        if guard_is_first {
            guard.release().await.unwrap();
            ending.shutdown(LIMIT).await.unwrap();
        } else {
            ending.shutdown(LIMIT).await.unwrap();
            assert!(guard.is_lost());
            assert_err!(guard.release().await, Lost);
        }
        granted_after(until, other).await;
    }
}
