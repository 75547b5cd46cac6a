//! Where the background work of a client runs: on one runtime, which never changes.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_distributed_lock::{LockClient, LockError, MemoryStore};

use super::wired::Wired;

/// Time passes on it when nothing else happens, and only in `block_on`.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn names_the_remedy(refused: Result<impl Sized, LockError>) {
    let Err(LockError::Invalid(why)) = refused else {
        panic!("it is refused at once: {:?}", refused.err());
    };
    assert!(why.to_string().contains(".runtime(handle)"), "{why}");
}

#[test]
fn a_request_outside_of_every_runtime_is_refused_with_the_remedy() {
    let locks = LockClient::new(MemoryStore::new());
    names_the_remedy(futures_util::FutureExt::now_or_never(locks.lock("k").acquire()).unwrap());
    let given = runtime();
    let locks = LockClient::builder(MemoryStore::new()).runtime(given.handle().clone());
    let locks = locks.build();
    let guard = futures_util::FutureExt::now_or_never(locks.lock("k").acquire());
    drop(guard.expect("at once").expect("free"));
    assert_eq!(locks.keys_in_use(), 0);
}

#[test]
fn a_request_after_the_end_of_the_runtime_is_refused_with_the_remedy() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let first = runtime();
    let guard = first.block_on(locks.lock("1:n").acquire()).expect("free");
    drop(first);
    // Its release cannot run: the hold ends with its lease.
    drop(guard);
    runtime().block_on(async {
        names_the_remedy(locks.lock("1:n").await);
        names_the_remedy(locks.lock("2:n").wait(Duration::ZERO).await);
        let other = LockClient::new(store.inner());
        let freed = other.lock("1:n").wait(Duration::from_secs(60)).await;
        freed
            .expect("within one lease")
            .release()
            .await
            .expect("held");
    });
}

/// A client that outlives the runtimes of its requests.
#[test]
fn a_client_with_a_runtime_of_its_own_serves_every_runtime() {
    let given = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let locks = LockClient::builder(MemoryStore::new()).runtime(given.handle().clone());
    let locks = locks.build();
    for _ in 0..2 {
        let each = Builder::new_current_thread().enable_all().build().unwrap();
        let guard = each.block_on(locks.lock("k").acquire()).expect("free");
        drop(each);
        drop(guard);
    }
}

/// The task of a contended key runs near the first request that waits, and goes on elsewhere when the runtime of that has ended.
#[test]
fn a_request_that_waits_outlives_the_runtime_of_the_one_before() {
    let given = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let store = MemoryStore::new();
    let locks = LockClient::builder(store.clone()).runtime(given.handle().clone());
    let locks = locks.build();
    let other = LockClient::builder(store).runtime(given.handle().clone());
    let holder = given.block_on(other.build().lock("k").acquire());
    let wait_for = |waiters: usize| {
        while locks
            .snapshot_of("k")
            .is_none_or(|key| key.waiters.len() < waiters)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let first = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    drop(first.spawn(locks.lock("k").acquire()));
    wait_for(1);
    let second = given.spawn(locks.lock("k").acquire());
    wait_for(2);
    drop(first);
    given.block_on(async {
        holder.expect("free").release().await.expect("held");
        let granted = tokio::time::timeout(Duration::from_secs(20), second).await;
        let granted = granted.expect("in time").expect("it goes on");
        granted.expect("free").release().await.expect("held");
    });
}
