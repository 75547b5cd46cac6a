//! One task in each of two processes, which asks for the lock again right after its release.
//!
//! No request of such a task waits in its process behind another one. A store with a line refuses it until its turn. Without
//! a line, its process yields after a release that woke others, so a store must count them: this is no case of the exported
//! suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::{JoinSet, yield_now};
use tower_distributed_lock::{LockClient, LockMode};
use tower_distributed_lock_testing::conformance::Testbed;

use super::testbeds::{Distant, Memory, Worked};

const GRANTS: usize = 96;

#[tokio::test(start_paused = true)]
async fn each_of_two_gets_its_share_of_a_lock_in_memory() {
    each_gets_its_share::<Memory>(&[LockMode::Reentrant, LockMode::Fair, LockMode::Write]).await;
}

#[tokio::test(start_paused = true)]
async fn each_of_two_gets_its_share_of_a_distant_lock() {
    each_gets_its_share::<Distant>(&[LockMode::Reentrant, LockMode::Fair, LockMode::Write]).await;
}

#[tokio::test(start_paused = true)]
async fn each_of_two_gets_its_share_of_a_store_without_a_line() {
    each_gets_its_share::<Worked>(&[LockMode::Reentrant]).await;
}

async fn each_gets_its_share<T: Testbed>(modes: &[LockMode]) {
    let testbed = T::start().await;
    for &mode in modes {
        let grants = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let mut busy = JoinSet::new();
        for process in 0..2 {
            let locks = LockClient::new(testbed.connect().await);
            busy.spawn(ask_again_and_again(locks, mode, grants.clone(), process));
        }
        busy.join_all().await;
        let shares = grants.each_ref().map(|share| share.load(Ordering::SeqCst));
        let is_fair = shares.iter().all(|share| *share >= GRANTS / 4);
        assert!(is_fair, "{mode:?}: {shares:?}");
    }
    tokio::time::sleep(T::SETTLES).await;
    assert_eq!(testbed.leftovers().await, Vec::<String>::new());
}

async fn ask_again_and_again(
    locks: LockClient,
    mode: LockMode,
    grants: Arc<[AtomicUsize; 2]>,
    process: usize,
) {
    while grants
        .iter()
        .map(|n| n.load(Ordering::SeqCst))
        .sum::<usize>()
        < GRANTS
    {
        let guard = locks.lock("n").mode(mode).await.expect("it is its turn");
        grants[process].fetch_add(1, Ordering::SeqCst);
        // Nothing else in it waits, and the other task would not run.
        yield_now().await;
        guard.release().await.expect("held");
    }
}
