//! Runtimes that end while their tasks hold, release and renew.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, Owner};

use super::{MODES, PATIENT, SOON, client, outcome, rival, works_again};
use crate::support::{Ending, Proxy, RedisServer, eventually};

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

async fn end(runtime: Runtime) {
    let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(SOON));
    ended.await.expect("no panic");
}

/// L1, L6, L7. Its guards are dropped with its tasks: the locks are free when the client is used again, and in any case
/// within their lease.
#[tokio::test]
async fn a_runtime_that_ends_while_its_tasks_hold_frees_their_locks() {
    let server = RedisServer::start().await;
    let other = client(server.url()).await;
    let ends = MODES.map(|mode| ends_while_it_holds(&server, &other, mode));
    let clients = join_all(ends).await;
    works_again(&server, &[&other]).await;
    works_again(&server, &clients.iter().collect::<Vec<_>>()).await;
}

/// Returns the client that lived on the runtime that has ended.
async fn ends_while_it_holds(
    server: &RedisServer,
    other: &LockClient,
    mode: LockMode,
) -> LockClient {
    let first = runtime();
    let locks = outcome(first.spawn(client(server.url()))).await;
    let (hold, held) = tokio::sync::oneshot::channel();
    let lease = Lease::Renewed(Duration::from_secs(5));
    let asking = locks.lock(mode.as_str()).mode(mode).lease(lease);
    first.spawn(async move {
        let _guard = asking.await.expect("free");
        hold.send(()).expect("a receiver is there");
        std::future::pending::<()>().await;
    });
    held.await.expect("it holds");
    let rival = other.lock(mode.as_str()).mode(rival(mode)).wait(PATIENT);
    let waiting = tokio::spawn(rival.acquire());
    end(first).await;
    let next = outcome(waiting).await.expect("within its lease");
    next.release().await.expect("held");
    locks
}

/// S4, S5. A client is shared by two runtimes, and was made on the one that ends. Its background work runs on the thread of the
/// store.
#[tokio::test]
async fn a_runtime_that_ends_does_not_end_the_renewals_of_another() {
    let server = RedisServer::start().await;
    let first = runtime();
    let locks = outcome(first.spawn(client(server.url()))).await;
    let there = locks.lock("there").into_future();
    let there = first.spawn(there);
    let there = outcome(there).await.expect("free");
    let lease = Duration::from_secs(3);
    let mut here = Vec::new();
    for mode in MODES {
        let asking = locks.lock(mode.as_str()).mode(mode);
        here.push(asking.lease(Lease::Renewed(lease)).await.expect("free"));
    }
    end(first).await;
    tokio::time::sleep(lease * 2).await;
    for guard in here {
        assert!(!guard.is_lost(), "it is renewed");
        guard.release().await.expect("held all the time");
    }
    there.release().await.expect("held all the time");
    works_again(&server, &[&locks]).await;
}

/// S9, L4. Two guards share a hold. The runtime ends while the release of the last guard is under way. The release of
/// the first guard, which asks whether the hold was held, fails.
#[tokio::test]
async fn a_release_that_ends_with_its_runtime_is_answered() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    for mode in MODES {
        let first = runtime();
        let locks = outcome(first.spawn(client(proxy.url()))).await;
        let owner = Owner::new();
        let asking = locks.lock("n").mode(mode).owner(&owner);
        let asking = asking.lease(Lease::Renewed(Duration::from_secs(5)));
        let outer = outcome(first.spawn(asking.clone().into_future()))
            .await
            .expect("free");
        let inner = asking.await.expect("it is the owner's");

        proxy.replies.hold();
        let checked = tokio::spawn(inner.release());
        proxy.replies.until_caught().await;
        // It is driven near its guard, and goes on elsewhere.
        first.spawn(async move { drop(outer) });
        eventually("it has been released", SOON, async || {
            !server.dump().await.contains_key("n")
        })
        .await;
        end(first).await;
        proxy.replies.release();
        let released = timeout(SOON, checked).await.expect("it is answered");
        let released = released.expect("no panic");
        assert!(
            matches!(released, Err(LockError::Lost | LockError::Unconfirmed(_))),
            "{mode:?}: {released:?}"
        );
        works_again(&server, &[&locks]).await;
    }
}

/// Waits until none of the keys `there …` is held.
async fn are_free(server: &RedisServer) {
    eventually("all are free", SOON, async || {
        !server
            .dump()
            .await
            .keys()
            .any(|key| key.starts_with("there"))
    })
    .await;
}

/// L7. Guards are dropped, and their runtime ends before it has done anything for their release.
#[tokio::test]
async fn a_guard_that_is_dropped_just_before_its_runtime_ends_is_released() {
    let server = RedisServer::start().await;
    let locks = client(server.url()).await;
    let guards = join_all(MODES.map(|mode| {
        let key = format!("there {}", mode.as_str());
        locks.lock(key).mode(mode).into_future()
    }));
    let guards = guards.await;
    let ended = tokio::task::spawn_blocking(|| {
        let last = runtime();
        // Its only worker is busy until it ends.
        last.spawn(async { std::thread::sleep(Duration::from_millis(500)) });
        last.block_on(async { drop(guards) });
    });
    ended.await.expect("no panic");
    are_free(&server).await;
    works_again(&server, &[&locks]).await;
}

/// S4, S9, L7. Releases began on the runtime that ends. They go on in the background, which runs on the thread of the store, and other
/// locks are not affected.
#[tokio::test]
async fn releases_begun_on_a_runtime_that_ended_go_on() {
    let server = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&server).await;
    let first = runtime();
    let locks = outcome(first.spawn(client(proxy.url()))).await;
    let lease = Duration::from_secs(4);
    let asking = |mode: LockMode| {
        let key = format!("there {}", mode.as_str());
        locks.lock(key).mode(mode).lease(Lease::Renewed(lease * 10))
    };
    let there = MODES.map(|mode| first.spawn(asking(mode).into_future()));
    let there = join_all(there.map(outcome)).await;
    let here = locks.lock("here").lease(Lease::Renewed(lease));
    let here = here.await.expect("free");

    proxy.refuse().await;
    assert!(proxy.cut(Ending::Reset).await > 0);
    let releasing = there
        .into_iter()
        .map(|guard| first.spawn(guard.expect("free").release()));
    let releasing: Vec<_> = releasing.collect();
    // They now pause before the next attempt, on the timer of the runtime that is about to end.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!releasing.iter().any(|task| task.is_finished()));
    end(first).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.accept().await;
    are_free(&server).await;
    tokio::time::sleep(lease * 2).await;
    assert!(!here.is_lost(), "it is renewed");
    here.release().await.expect("held all the time");
    works_again(&server, &[&locks]).await;
}
