//! The minimum of a hold: [`LockRequest::hold_at_least`](crate::LockRequest::hold_at_least).

use std::time::Duration;

use crate::{LockClient, LockError, LockGuard, LockMode, LockRequest};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::KEY;
use super::env::Env;
use super::waiter::Waiter;

const LIMIT: Duration = Duration::from_secs(5);

/// A hold with a minimum.
struct KeptHold {
    locks: LockClient,
    guard: LockGuard,
    /// No other request is granted before.
    until: Instant,
}

impl KeptHold {
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
        assert!(
            Instant::now() >= until,
            "granted before the minimum was over"
        );
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
        let kept = KeptHold::take(env, mode).await;
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
        let kept = KeptHold::take(env, mode).await;
        let other = Waiter::queue(env, patient(&env.client().await, mode)).await;
        if guard_is_first {
            kept.guard.release().await.unwrap();
            kept.locks.shutdown(LIMIT).await.unwrap();
        } else {
            kept.locks.shutdown(LIMIT).await.unwrap();
            assert!(kept.guard.is_lost());
            let released = kept.guard.release().await;
            assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        }
        granted_after(kept.until, [other]).await;
    }
}
