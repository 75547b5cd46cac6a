//! Runtimes that make no progress for longer than a lease, because their workers are blocked or the runtime has
//! ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};
use tower_distributed_lock::{
    Lease, LockClient, LockError, LockGuard, LockMode, MemoryStore, RedisStore,
};
use tower_distributed_lock_quorum::QuorumStore;

use super::faults::excluded_by;
use super::{MODES, SOON, client};
use crate::support::RedisServer;

const WORKERS: usize = 2;
const LEASE: Duration = Duration::from_secs(2);
const LEASES: u32 = 3;

/// A server's runtime, all of whose workers can be blocked.
struct Service {
    runtime: Option<Runtime>,
}

impl Service {
    fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.worker_threads(WORKERS).enable_all();
        Self {
            runtime: Some(builder.build().expect("a runtime")),
        }
    }

    /// Runs `work` there.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self
            .runtime
            .as_ref()
            .expect("it is there until it is dropped");
        runtime.spawn(work).await.expect("no panic")
    }

    /// Blocks every worker while `meanwhile` runs.
    async fn busy<T>(&self, meanwhile: impl Future<Output = T>) -> T {
        let runtime = self
            .runtime
            .as_ref()
            .expect("it is there until it is dropped");
        let (began, beginning) = mpsc::channel();
        let ends: Vec<_> = (0..WORKERS)
            .map(|_| {
                let ((end, ended), began) = (mpsc::channel::<()>(), began.clone());
                runtime.spawn(async move {
                    began.send(thread::current().id()).expect("the test waits");
                    // Blocks its worker, as a computing handler does.
                    let _ = ended.recv();
                });
                end
            })
            .collect();
        let mut busy: Vec<_> = (0..WORKERS)
            .map(|_| beginning.recv_timeout(SOON * 6).expect("a worker is free"))
            .collect();
        busy.dedup();
        assert_eq!(busy.len(), WORKERS, "a worker is left");
        let ran = Arc::new(AtomicBool::new(false));
        let probe = runtime.spawn({
            let ran = ran.clone();
            async move { ran.store(true, Ordering::SeqCst) }
        });
        let result = meanwhile.await;
        assert!(!ran.load(Ordering::SeqCst), "the runtime was not busy");
        drop(ends);
        probe.await.expect("it goes on");
        result
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn hold(locks: LockClient, mode: LockMode, lease: Duration) -> LockGuard {
    let request = locks.lock(mode.as_str()).mode(mode);
    request.lease(Lease::Renewed(lease)).await.expect("free")
}

/// Tries to get the held locks, in each of `modes`, for several leases.
async fn no_other_client_gets_in(stranger: &LockClient, modes: &[LockMode]) {
    let until = Instant::now() + LEASE * LEASES;
    let attempts = modes.iter().map(|&mode| {
        let request = stranger.lock(mode.as_str()).mode(excluded_by(mode));
        request.wait(until - Instant::now()).acquire()
    });
    for attempt in futures_util::future::join_all(attempts).await {
        assert!(
            matches!(attempt, Err(LockError::Busy { .. })),
            "{attempt:?}"
        );
    }
}

/// Holds a lock in each of `modes` while all workers are blocked: no other client gets one, and every release is
/// confirmed.
async fn outlive_busy_workers(
    service: &Service,
    locks: LockClient,
    stranger: &LockClient,
    modes: &[LockMode],
) {
    let mut guards = Vec::new();
    for &mode in modes {
        guards.push(service.run(hold(locks.clone(), mode, LEASE)).await);
    }
    service.busy(no_other_client_gets_in(stranger, modes)).await;
    for guard in guards {
        assert!(!guard.is_lost());
        let released = service.run(guard.release()).await;
        released.expect("it was held all the time");
    }
}

#[tokio::test]
async fn busy_workers_keep_their_locks_in_redis() {
    let redis = RedisServer::start().await;
    let service = Service::new();
    let (locks, stranger) = (
        service.run(client(redis.url())).await,
        client(redis.url()).await,
    );
    outlive_busy_workers(&service, locks, &stranger, &MODES).await;
    let free = stranger.lock("reentrant").await.expect("free again");
    free.release().await.expect("held");
}

#[tokio::test]
async fn busy_workers_keep_their_locks_in_a_quorum() {
    const MODES: [LockMode; 3] = [LockMode::Reentrant, LockMode::Read, LockMode::Write];
    let servers = [
        RedisServer::start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ];
    let urls = [servers[0].url(), servers[1].url(), servers[2].url()];
    let quorum = async |urls: [String; 3]| {
        let mut stores = Vec::new();
        for url in urls {
            stores.push(RedisStore::connect(url).await.expect("Redis is there"));
        }
        LockClient::new(QuorumStore::new(stores).expect("three are a quorum"))
    };
    let service = Service::new();
    let there = urls.clone();
    let (locks, stranger) = (
        service.run(async move { quorum(there).await }).await,
        quorum(urls).await,
    );
    outlive_busy_workers(&service, locks, &stranger, &MODES).await;
}

#[tokio::test]
async fn busy_workers_keep_a_lock_in_memory_that_is_renewed_elsewhere() {
    let service = Service::new();
    let store = MemoryStore::new();
    let stranger = LockClient::new(store.clone());
    let locks = LockClient::builder(store);
    let locks = locks.runtime(tokio::runtime::Handle::current()).build();
    outlive_busy_workers(&service, locks, &stranger, &MODES).await;
}

/// Where the store has no thread, and the client was given no runtime, the lock is lost.
#[tokio::test]
async fn a_lock_that_busy_workers_fail_to_renew_is_reported_lost() {
    let service = Service::new();
    let store = MemoryStore::new();
    let stranger = LockClient::new(store.clone());
    let locks = LockClient::new(store);
    let guard = service
        .run(async move { hold(locks, LockMode::Reentrant, LEASE).await })
        .await;
    let deadline = guard.deadline();
    let next = service.busy(stranger.lock("reentrant").into_future()).await;
    let next = next.expect("free when the lease is over");
    assert!(Instant::now() >= deadline && guard.is_lost());
    let released = service.run(guard.release()).await;
    assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    next.release().await.expect("held");
}

/// A guard that outlives its runtime is renewed on the store's thread, and released on another runtime.
#[tokio::test]
async fn a_lock_outlives_the_runtime_that_took_it() {
    let redis = RedisServer::start().await;
    let service = Service::new();
    let (locks, stranger) = (
        service.run(client(redis.url())).await,
        client(redis.url()).await,
    );
    let guard = service.run(hold(locks, LockMode::Reentrant, LEASE)).await;
    drop(service);
    no_other_client_gets_in(&stranger, &[LockMode::Reentrant]).await;
    let released = timeout(SOON * 6, guard.release()).await.expect("in time");
    released.expect("it was held all the time");
}

/// Two clients of one store share its thread; the end of one does not affect the other.
#[tokio::test]
async fn a_client_that_ends_does_not_end_the_renewals_of_another() {
    let redis = RedisServer::start().await;
    let store = RedisStore::connect(redis.url())
        .await
        .expect("Redis is there");
    let (first, second) = (LockClient::new(store.clone()), LockClient::new(store));
    let gone = hold(first.clone(), LockMode::Write, LEASE).await;
    let kept = hold(second, LockMode::Reentrant, LEASE).await;
    gone.release().await.expect("held");
    drop(first);
    no_other_client_gets_in(&client(redis.url()).await, &[LockMode::Reentrant]).await;
    kept.release().await.expect("held");
}

/// The server has no room for the connection that renews. It says so where the answer to the password is expected.
#[tokio::test]
async fn a_hold_is_kept_when_the_server_takes_no_more_connections() {
    // Two connections each, and the observer's.
    a_hold_is_kept_without_new_connections(["maxclients", "5"]).await;
}

/// The connections that are open stay open, and the next one has the former password.
#[tokio::test]
async fn a_hold_is_kept_when_the_password_is_changed() {
    a_hold_is_kept_without_new_connections(["requirepass", "changed"]).await;
}

/// The client connects for its commands before this is set, and for its renewals after it.
async fn a_hold_is_kept_without_new_connections(set: [&str; 2]) {
    let redis = RedisServer::builder().password("secret").start().await;
    let store = RedisStore::connect(redis.url())
        .await
        .expect("Redis is there");
    let locks = LockClient::new(store);
    let stranger = client(redis.url()).await;
    let mut observer = redis.connection().await;
    let set = redis::cmd("CONFIG").arg("SET").arg(&set).to_owned();
    set.exec_async(&mut observer).await.expect("it may be set");
    let guard = hold(locks, LockMode::Reentrant, LEASE).await;
    let until = Instant::now() + LEASE * LEASES;
    while Instant::now() < until {
        // Without waiting, because a wait needs another connection.
        let refused = stranger.lock("reentrant").wait(Duration::ZERO).await;
        assert!(
            matches!(refused, Err(LockError::Busy { .. })),
            "{refused:?}"
        );
        tokio::time::sleep(LEASE / 10).await;
    }
    guard.release().await.expect("held");
}
