//! Other tasks on the same executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_distributed_lock::{LockClient, MemoryStore};

#[tokio::test]
async fn a_loop_over_a_free_lock_lets_other_tasks_run() {
    let locks = LockClient::new(MemoryStore::new());
    let ran = Arc::new(AtomicBool::new(false));
    let other = ran.clone();
    tokio::spawn(async move { other.store(true, Ordering::SeqCst) });
    // On this executor's only thread: if nothing yields, the other task never runs.
    for _ in 0..10_000 {
        let guard = locks.lock("n").await.expect("free");
        guard.release().await.expect("held");
        if ran.load(Ordering::SeqCst) {
            return;
        }
    }
    panic!("the other task was kept from running");
}
