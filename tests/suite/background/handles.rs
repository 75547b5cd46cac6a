//! The last handle of a runtime that has ended. Its drop drops what the program has given to the runtime: here a hook
//! that owns a guard, which is then released.

use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_distributed_lock::{LockClient, LockGuard};

use super::wired::Wired;

/// A deadlock never ends.
const LONG: Duration = Duration::from_secs(60);

type Slot = Mutex<Option<LockGuard>>;

/// A runtime, and the place for a guard that its hook owns.
fn runtime_with_slot() -> (Runtime, Weak<Slot>) {
    let slot = Arc::new(Slot::default());
    let owned = Arc::downgrade(&slot);
    let mut builder = Builder::new_current_thread();
    let builder = builder.enable_all().on_thread_park(move || {
        let _ = &slot;
    });
    (builder.build().expect("a runtime"), owned)
}

fn fill(slot: &Weak<Slot>, guard: LockGuard) {
    let slot = slot.upgrade().expect("the runtime has it");
    *slot.lock().unwrap() = Some(guard);
}

/// Runs `work` on a thread of its own, and fails if that has no end.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        work();
        done.send(()).expect("the test waits");
    });
    ended.recv_timeout(LONG).expect("it ends, without a panic");
}

async fn until_free(locks: &LockClient, key: &str) {
    let free = locks.lock(key).wait(LONG).await;
    free.expect("it is released").release().await.expect("held");
}

/// The clean-up of a client knows two runtimes, and forgets the first when it gets a third.
#[test]
fn a_runtime_that_the_clean_up_forgets_may_own_a_guard() {
    in_time(|| {
        let locks = LockClient::new(Wired::default());
        let (first, slot) = runtime_with_slot();
        let guard = first.block_on(async { locks.lock("1:owned").await.expect("free") });
        fill(&slot, guard);
        drop(first);
        assert!(slot.strong_count() > 0, "the client has a handle");
        let others = [(); 2].map(|()| runtime_with_slot().0);
        for (n, other) in others.iter().enumerate() {
            other.block_on(async {
                let guard = locks.lock(format!("1:{n}")).await.expect("free");
                guard.release().await.expect("held");
            });
        }
        assert_eq!(slot.strong_count(), 0, "the client has forgotten the first");
        others[1].block_on(until_free(&locks, "1:owned"));
    });
}

/// The watchdog starts its task on a runtime of the store. That has ended, and the watchdog has its last handle.
#[test]
fn a_runtime_on_which_the_watchdog_starts_may_own_a_guard() {
    in_time(|| {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let (first, _) = runtime_with_slot();
        let guard = first.block_on(async { locks.lock("1:owned").await.expect("free") });
        // The watchdog's task ends with its runtime.
        drop(first);
        let (of_the_store, slot) = runtime_with_slot();
        fill(&slot, guard);
        store.give_runtime(of_the_store.handle().clone());
        drop(of_the_store);
        let (here, _) = runtime_with_slot();
        here.block_on(async {
            let guard = locks.lock("1:n").await.expect("free");
            assert_eq!(slot.strong_count(), 0, "the last handle is dropped");
            guard.release().await.expect("held");
            until_free(&locks, "1:owned").await;
        });
    });
}
