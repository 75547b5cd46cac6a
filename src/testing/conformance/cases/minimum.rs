//! The minimum of a hold: [`LockRequest::hold_at_least`](crate::LockRequest::hold_at_least).

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// A hold with a minimum.
struct HoldWithMinimum {
    locks: LockClient,
    guard: LockGuard,
    /// No other request is granted before.
    until: Instant,
}

impl HoldWithMinimum {
    async fn take(env: &Env, mode: LockMode) -> Self {
        let locks = env.client().await;
        let minimum = env.short_lease();
        // The store counts whole milliseconds.
        let until = Instant::now() + minimum - Duration::from_millis(2);
        let request = locks.lock(KEY).mode(mode).hold_at_least(minimum);
        let guard = request.await.unwrap();
        Self {
            locks,
            guard,
            until,
        }
    }
}

/// Each of the requests waits, and is granted when the minimum is over.
async fn granted_after(until: Instant, requests: impl IntoIterator<Item = Waiter>) {
    let granted = requests.into_iter().map(async |request| {
        let guard = request.granted().await;
        assert!(Instant::now() >= until, "within the minimum");
        guard.release().await.unwrap();
    });
    join_all(granted).await;
}

fn patient(locks: &LockClient, mode: LockMode) -> LockRequest {
    locks.lock(KEY).mode(mode).wait(Duration::from_secs(60))
}

/// The key stays taken, for its own client too.
pub async fn a_minimum_ends_with_its_guard(env: &Env, mode: LockMode) {
    for is_dropped in [false, true] {
        let kept = HoldWithMinimum::take(env, mode).await;
        let own = Waiter::queue(env, patient(&kept.locks, mode)).await;
        let other = Waiter::queue(env, patient(&env.client().await, mode)).await;
        match is_dropped {
            true => drop(kept.guard),
            false => kept.guard.release().await.unwrap(),
        }
        granted_after(kept.until, [own, other]).await;
    }
}

/// The key stays taken, whether the client ends before the guard or after it.
pub async fn a_minimum_ends_with_its_client(env: &Env, mode: LockMode) {
    for guard_is_first in [true, false] {
        let kept = HoldWithMinimum::take(env, mode).await;
        let other = Waiter::queue(env, patient(&env.client().await, mode)).await;
        if guard_is_first {
            kept.guard.release().await.unwrap();
            kept.locks.shutdown(LIMIT).await.unwrap();
        } else {
            kept.locks.shutdown(LIMIT).await.unwrap();
            assert!(kept.guard.is_lost());
            assert_err!(kept.guard.release().await, Lost);
        }
        granted_after(kept.until, [other]).await;
    }
}
