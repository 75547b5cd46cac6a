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

/// Releases near their callers go on when the runtime of these does.
#[test]
fn a_runtime_that_stands_still_delays_no_release_of_another() {
    let worker = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let [given, stands, goes_on] = [worker(), worker(), worker()];
    let store = Wired::default();
    let locks = LockClient::builder(store.clone()).runtime(given.handle().clone());
    let locks = locks.build();
    let (resume, stopped) = std::sync::mpsc::channel::<()>();
    let guards = given.block_on(async {
        let asking = (0..300).map(|n| locks.lock(format!("1:{n}")).acquire());
        futures_util::future::try_join_all(asking)
            .await
            .expect("free")
    });
    store.slow(Duration::from_millis(100));
    let (began, begun) = tokio::sync::oneshot::channel();
    let standing = stands.spawn(async move {
        drop(guards);
        // They are asked for.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _ = began.send(());
        let _ = stopped.recv_timeout(Duration::from_secs(20));
    });
    let free = goes_on.block_on(async {
        let guard = locks.lock("1:n").await.expect("free");
        begun.await.expect("it stands still");
        goes_on.spawn(async move { drop(guard) });
        let other = LockClient::new(store.inner());
        other.lock("1:n").wait(Duration::from_secs(5)).await
    });
    drop(resume);
    given.block_on(standing).expect("it goes on");
    drop(free.expect("it is released"));
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
