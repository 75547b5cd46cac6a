//! Releases that the store does not answer.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::{
    Lease, LockClient, LockError, LockGuard, LockMode, MemoryStore, Owner,
};

use super::wired::Wired;

/// The longest that a caller waits for the answer to its release.
const PATIENCE: Duration = Duration::from_millis(2500);

const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

async fn is_unavailable_soon(guard: LockGuard) {
    let began = Instant::now();
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Unavailable(_))),
        "{released:?}"
    );
    assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
}

/// S9. The caller is not kept for as long as the lease lasts; what it began goes on.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_store_that_is_down_no_longer_than_seconds() {
    for mode in MODES {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let lease = Lease::Fixed(Duration::from_secs(3600));
        let guard = locks.lock("1:n").mode(mode).lease(lease).await;
        let guard = guard.expect("free");
        store.cut(1);
        is_unavailable_soon(guard).await;
        assert!(!store.is_empty());
        store.mend(1);
        sleep(Duration::from_secs(2)).await;
        assert!(store.is_empty(), "the release has gone on");
    }
}

/// The same for a store that takes its time, for several keys, and for a hold that others share.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_silent_store_no_longer_than_seconds() {
    for mode in MODES {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let owner = Owner::new();
        let asking = || locks.lock("1:n").mode(mode).owner(&owner);
        let (outer, inner) = (asking().await.unwrap(), asking().await.unwrap());
        let several = locks.lock_all(["1:a", "1:b"]).mode(mode).await.unwrap();
        store.slow(Duration::from_secs(3600));
        is_unavailable_soon(inner).await;
        is_unavailable_soon(several).await;
        is_unavailable_soon(outer).await;
    }
}

/// A check is asked on the runtime of the first who asks. That nobody drives that runtime keeps the others no longer than
/// seconds.
#[test]
fn a_check_on_a_runtime_at_rest_keeps_nobody_waiting() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (at_rest, here) = (runtime(), runtime());
    let locks = LockClient::new(MemoryStore::new());
    let owner = Owner::new();
    let asking = || locks.lock("n").owner(&owner);
    let first = at_rest.block_on(async { asking().await.expect("free") });
    here.block_on(async {
        let inner = asking().await.expect("it is the owner's");
        let released = timeout(PATIENCE * 4, inner.release()).await;
        released.expect("it is answered").expect("held");
        first.release().await.expect("held");
    });
}
