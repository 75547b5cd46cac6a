//! Shutdown of a client while its callers take, wait for, and release locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::{LockAdmin, LockClient, LockMode, MemoryStore, RedisStore};
use tracing::instrument::WithSubscriber;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::wired::Wired;
use crate::support::RedisServer;

/// How many releases of a partition are under way at a time.
const AT_ONCE: u32 = 100;

const LIMIT: Duration = Duration::from_secs(10);

const TASKS: u64 = 32;

const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

/// A subscriber that blocks its thread in every event.
struct Blocking;

impl Subscriber for Blocking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_distributed_lock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        std::thread::sleep(Duration::from_micros(300));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Tasks take, queue for and release locks until the client ends. They may outlive the client for a moment.
async fn round<S: LockStore>(store: S, number: u64) -> Vec<JoinHandle<()>> {
    let locks = LockClient::new(store);
    let ended = Arc::new(AtomicBool::new(false));
    let tasks = (0..TASKS).map(|task| {
        let (locks, ended) = (locks.clone(), ended.clone());
        let mode = MODES[(task % 4) as usize];
        let family = if task % 4 < 2 { "exclusive" } else { "sides" };
        let key = format!("{family}:{}", task / 4 % 3);
        let work = async move {
            while !ended.load(Ordering::SeqCst) {
                let Ok(guard) = locks.lock(key.as_str()).mode(mode).await else {
                    return;
                };
                match task % 3 {
                    0 => drop(guard),
                    _ => drop(guard.release().await),
                }
            }
        };
        match number % 2 {
            0 => tokio::spawn(work),
            _ => tokio::spawn(work.with_subscriber(Blocking)),
        }
    });
    let tasks: Vec<_> = tasks.collect();
    sleep(Duration::from_micros(500 * (number % 9))).await;
    locks.shutdown(LIMIT).await.expect("it ends in time");
    ended.store(true, Ordering::SeqCst);
    tasks
}

/// Aborts the tasks, and with them everything that they hold.
async fn abort(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.abort();
        drop(task.await);
    }
}

/// None of the locks has a holder or a waiter.
async fn assert_free(store: &MemoryStore, number: u64) {
    let admin = LockAdmin::new(store.clone());
    for family in ["exclusive", "sides"] {
        for key in 0..3 {
            let lock = admin.inspect(format!("{family}:{key}")).await;
            let lock = lock.expect("memory answers");
            assert!(
                lock.holders.is_empty() && lock.waiters.is_empty(),
                "round {number}: {lock:?}"
            );
        }
    }
}

fn on_four_threads(test: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn nothing_is_left_in_memory_when_a_shutdown_is_over() {
    on_four_threads(async {
        for number in 0..100 {
            let store = MemoryStore::new();
            let tasks = round(store.clone(), number).await;
            assert_free(&store, number).await;
            // A guard that outlives its client may keep a subscription until it is dropped.
            abort(tasks).await;
            assert!(store.is_empty(), "round {number}");
        }
    });
}

#[test]
fn nothing_is_left_in_redis_when_a_shutdown_is_over() {
    on_four_threads(async {
        let server = RedisServer::start().await;
        for number in 0..100 {
            let store = RedisStore::connect(server.url()).await;
            let store = store.expect("Redis is there");
            let tasks = round(store, number).await;
            let left = server.dump_without_turns().await;
            assert!(left.is_empty(), "round {number}: {left:?}");
            abort(tasks).await;
        }
    });
}

/// A release that a caller waits for delays the end of the shutdown.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_releases_that_callers_await() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guard = locks.lock("n").await.expect("free");
    store.slow(Duration::from_secs(1));
    let releasing = tokio::spawn(guard.release());
    sleep(Duration::from_millis(1)).await;
    locks.shutdown(LIMIT).await.expect("in time");
    assert!(store.is_empty());
    releasing.await.unwrap().expect("held");
}

/// As many at a time as a store answers soon.
#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_many_holds_together() {
    const HOLDS: u32 = 2000;
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guards = join_all((0..HOLDS).map(|n| locks.lock(format!("1:{n}")).acquire())).await;
    let latency = Duration::from_millis(10);
    store.slow(latency);
    store.most_in_flight();
    let began = Instant::now();
    locks.shutdown(LIMIT).await.expect("in time");
    assert!(store.is_empty());
    assert!(began.elapsed() <= latency * (HOLDS / AT_ONCE + 1));
    assert_eq!(store.calls("release", 1).len(), HOLDS as usize);
    let most = store.most_in_flight();
    assert!(most <= AT_ONCE as usize, "{most} at once");
    drop(guards);
}

/// Those that fail are repeated after growing pauses, and the others wait for that.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_an_outage_does_not_ask_for_each_hold() {
    const HOLDS: u32 = 2000;
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guards = join_all((0..HOLDS).map(|n| locks.lock(format!("1:{n}")).acquire())).await;
    store.cut(1);
    let ending = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.shutdown(Duration::from_secs(25)).await })
    };
    sleep(Duration::from_secs(5)).await;
    let asked = store.calls("release", 1).len();
    assert!((1..=12 * AT_ONCE as usize).contains(&asked), "{asked}");
    store.restore(1);
    ending.await.unwrap().expect("in time");
    assert!(store.is_empty());
    drop(guards);
}
