//! A client that several runtimes share. One of them ends, or is not driven any more, and leaves work of the client.

use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::{LockClient, LockGuard, LockMode, MemoryStore, Owner};
use tower_distributed_lock_quorum::QuorumStore;

use super::wired::Wired;

/// The end of a test that would hang.
const LONG: Duration = Duration::from_secs(600);

/// Longer than a lease.
const LEASE: Duration = Duration::from_secs(35);

/// Time passes on it when nothing else happens, and only in `block_on`.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let builder = builder.enable_all().start_paused(true);
    builder.build().expect("a runtime")
}

fn outside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

fn run_what_is_ready(runtime: &Runtime) {
    runtime.block_on(async { sleep(Duration::from_millis(1)).await });
}

async fn soon_again(locks: &LockClient, key: &str) {
    let again = locks.lock(key).wait(LONG).await.expect("it is released");
    again.release().await.expect("held");
    assert_eq!(locks.keys_in_use(), 0);
}

/// A client, and a guard whose runtime has ended.
fn guard_of_an_ended_runtime(store: &Wired, mode: LockMode) -> (LockClient, LockGuard) {
    let locks = LockClient::new(store.clone());
    let first = runtime();
    let guard = first.block_on(locks.lock("1:n").mode(mode).acquire());
    (locks, guard.expect("free"))
}

/// L2, L6. No other key is taken on the second runtime.
#[test]
fn a_release_whose_runtime_has_ended_keeps_no_request_from_its_key() {
    for mode in [LockMode::Reentrant, LockMode::Write, LockMode::Fair] {
        let (locks, guard) = guard_of_an_ended_runtime(&Wired::default(), mode);
        drop(guard);
        let here = runtime();
        here.block_on(async {
            let began = Instant::now();
            let again = locks.lock("1:n").mode(mode).wait(LONG).await;
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{mode:?}: a lease"
            );
            again.expect("released").release().await.expect("held");
            assert_eq!(locks.keys_in_use(), 0);
        });
    }
}

#[test]
fn a_release_whose_runtime_has_ended_keeps_no_try_from_its_key() {
    let modes = [LockMode::Reentrant, LockMode::Write, LockMode::Fair];
    for (mode, keys) in modes
        .into_iter()
        .flat_map(|mode| [(mode, &["1:n"][..]), (mode, &["1:n", "1:m"])])
    {
        let (locks, guard) = guard_of_an_ended_runtime(&Wired::default(), mode);
        drop(guard);
        runtime().block_on(async {
            let began = Instant::now();
            let guard = loop {
                let tried = locks.lock_all(keys.to_vec()).mode(mode).try_acquire();
                match tried.await.expect("an answer") {
                    Some(guard) => break guard,
                    None => sleep(Duration::from_millis(10)).await,
                }
                assert!(
                    began.elapsed() < Duration::from_secs(1),
                    "{mode:?}, {keys:?}: it is in use until its lease is over"
                );
            };
            guard.release().await.expect("held");
        });
    }
}

/// The request has no lock, so the clean-up does not know its runtime when the release loses its own.
#[test]
fn a_request_that_waits_when_the_runtime_of_a_release_ends_gets_the_key() {
    // A hold that is handed over needs no release.
    let locks = LockClient::builder(Wired::default()).handovers(0).build();
    let (first, here) = (runtime(), runtime());
    let guard = first.block_on(locks.lock("1:n").acquire()).expect("free");
    let waiter = here.spawn(locks.lock("1:n").wait(LONG).acquire());
    here.block_on(yield_now());
    drop(first);
    drop(guard);
    here.block_on(async {
        let began = Instant::now();
        let guard = waiter.await.unwrap().expect("it is released");
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(5), "a lease: {waited:?}");
        guard.release().await.expect("held");
        soon_again(&locks, "1:n").await;
    });
}

/// The read has the id of the write, so the next one waits until it is released.
#[test]
fn a_nested_read_whose_runtime_has_ended_keeps_its_owner_from_no_other() {
    let locks = LockClient::new(Wired::default());
    let owner = Owner::new();
    let first = runtime();
    let ask = |mode| locks.lock("1:n").mode(mode).owner(&owner).wait(LONG);
    let write = first
        .block_on(ask(LockMode::Write).acquire())
        .expect("free");
    let read = first.block_on(ask(LockMode::Read).acquire()).expect("free");
    drop(first);
    drop(read);
    runtime().block_on(async {
        let read = ask(LockMode::Read).await.expect("the owner writes");
        read.release().await.expect("held");
        write.release().await.expect("held");
    });
}

/// The last step of the first runtime is the drop of a guard. Its release does not begin, and the hold ends with its lease.
#[test]
fn a_runtime_that_is_not_driven_keeps_no_request_from_a_key_that_is_free() {
    for waits in [true, false] {
        let locks = LockClient::new(Wired::default());
        let (first, here) = (runtime(), runtime());
        first.block_on(async { drop(locks.lock("1:n").await.expect("free")) });
        let (waiter, second) = here.block_on(async {
            let began = Instant::now();
            let again = match waits {
                true => locks
                    .lock("1:n")
                    .wait(LONG)
                    .await
                    .expect("its lease is over"),
                false => loop {
                    match locks.try_lock("1:n").await.expect("an answer") {
                        Some(guard) => break guard,
                        None => sleep(Duration::from_millis(100)).await,
                    }
                    assert!(began.elapsed() < 2 * LEASE, "it is in use for ever");
                },
            };
            assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
            let mut waiter = Box::pin(locks.lock("1:n").wait(LONG).acquire());
            assert!((&mut waiter).now_or_never().is_none());
            (waiter, again)
        });
        // The first release ends now. The turn is not its own any more.
        run_what_is_ready(&first);
        here.block_on(async {
            assert!(locks.try_lock("1:n").await.expect("an answer").is_none());
            second.release().await.expect("held");
            waiter.await.expect("free").release().await.expect("held");
            soon_again(&locks, "1:n").await;
        });
    }
}

/// The store answers no question about the other key alone.
#[test]
fn a_runtime_that_is_not_driven_keeps_no_request_for_any_of_several_keys_from_the_free_one() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let (first, here) = (runtime(), runtime());
    first.block_on(async { drop(locks.lock("2:n").await.expect("free")) });
    store.refuse_single(1);
    here.block_on(async {
        let any = locks.lock_any(["1:n", "2:n"]).wait(LONG).await;
        any.expect("it asks for both")
            .release()
            .await
            .expect("held");
    });
}

/// More releases than there are places begin there, and none is answered.
fn fill_the_places(locks: &LockClient, there: &Runtime) {
    there.block_on(async {
        let asking = (0..150).map(|n| locks.lock(format!("1:{n}")).acquire());
        drop(join_all(asking).await);
    });
    run_what_is_ready(there);
}

/// L1, L8. The releases that have the places are on a runtime that is not driven, and so are the next that wait for one.
#[test]
fn a_runtime_that_is_not_driven_keeps_no_release_from_the_store() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let (first, here) = (runtime(), runtime());
    store.slow(Duration::from_millis(10));
    fill_the_places(&locks, &first);
    for keys in [&["1:n"][..], &["1:a", "1:b"]] {
        here.block_on(async {
            let began = Instant::now();
            drop(locks.lock_all(keys.to_vec()).await.expect("free"));
            let again = locks.lock_all(keys.to_vec()).wait(LONG).await;
            let waited = began.elapsed();
            assert!(waited < Duration::from_secs(10), "a lease: {waited:?}");
            again.expect("released").release().await.expect("held");
        });
    }
}

/// It waits for a place when its runtime ends.
#[test]
fn a_release_that_waits_for_its_place_goes_on_elsewhere() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let (first, second, here) = (runtime(), runtime(), runtime());
    store.slow(Duration::from_millis(10));
    fill_the_places(&locks, &first);
    second.block_on(async {
        drop(locks.lock("1:n").await.expect("free"));
        yield_now().await;
    });
    here.block_on(async {
        let other = locks.lock("2:n").await.expect("free");
        outside(move || drop(second));
        let began = Instant::now();
        let again = locks.lock("1:n").wait(LONG).await;
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(10), "a lease: {waited:?}");
        again.expect("released").release().await.expect("held");
        other.release().await.expect("held");
    });
}

/// The two sides of a key do not confuse their releases. The first key is free when its lease is over.
#[test]
fn a_late_release_of_a_write_returns_its_turn_after_a_release_of_another_mode() {
    let locks = LockClient::new(Wired::default());
    let (first, here) = (runtime(), runtime());
    let write = locks.lock("1:n").mode(LockMode::Write).acquire();
    first.block_on(async { drop(write.await.expect("free")) });
    here.block_on(async {
        sleep(LEASE).await;
        let other = locks.lock("1:n").wait(LONG).await;
        other
            .expect("its lease is over")
            .release()
            .await
            .expect("held");
    });
    run_what_is_ready(&first);
    assert_eq!(locks.keys_in_use(), 0);
}

/// The runtime where the last client is dropped was not known: no request came from it.
#[test]
fn a_release_whose_runtime_has_ended_begins_where_its_client_is_dropped() {
    let store = Wired::default();
    let (locks, guard) = guard_of_an_ended_runtime(&store, LockMode::Reentrant);
    outside(move || drop(guard));
    runtime().block_on(async {
        drop(locks);
        sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(store.calls("release", 1).len(), 1);
    assert!(store.is_empty(), "it is released");
}

/// L8. No request comes any more that could start it.
#[test]
fn a_release_whose_runtime_has_ended_keeps_no_store_alive() {
    for guard_is_last in [true, false] {
        let store = Wired::default();
        let is_alive = store.observe();
        let (locks, guard) = guard_of_an_ended_runtime(&store, LockMode::Reentrant);
        drop(store);
        assert!(is_alive());
        match guard_is_last {
            true => outside(move || {
                drop(locks);
                drop(guard);
            }),
            false => outside(move || {
                drop(guard);
                drop(locks);
            }),
        }
        assert!(!is_alive(), "guard is last: {guard_is_last}");
    }
}

/// L2. A quorum listens in a task of the request that subscribes. The next request of the process uses the subscription.
#[test]
fn a_subscription_whose_runtime_has_ended_is_not_used() {
    let store = QuorumStore::new([(); 3].map(|()| MemoryStore::new())).expect("a quorum");
    let [locks, other] = [(); 2].map(|()| LockClient::new(store.clone()));
    let (first, here) = (runtime(), runtime());
    let held = here.block_on(other.lock("n").acquire()).expect("free");
    let mut head = Box::pin(locks.lock("n").wait(LONG).acquire());
    first.block_on(async {
        tokio::select! {
            _ = &mut head => panic!("it is in use"),
            () = sleep(Duration::from_millis(100)) => {}
        }
    });
    let waiter = here.spawn(locks.lock("n").wait(LONG).acquire());
    here.block_on(yield_now());
    first.block_on(async { drop(head) });
    drop(first);
    here.block_on(async {
        // It has asked, was refused, and sleeps.
        sleep(Duration::from_millis(100)).await;
        held.release().await.expect("held");
        let released = Instant::now();
        let guard = waiter.await.unwrap().expect("free");
        let waited = released.elapsed();
        assert!(
            waited < Duration::from_millis(300),
            "woken after {waited:?}"
        );
        guard.release().await.expect("held");
    });
}
