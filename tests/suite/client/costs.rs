//! The costs of a lock, as counts that do not depend on the load of the machine.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::time::Instant;
use tower_distributed_lock::{LockClient, LockError, LockMode, MemoryStore, RedisStore};

use crate::support::{Console, Peer, RedisServer, eventually};

/// Counts allocations in every process of this binary. Only a peer, which does nothing else, reads the counts.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 500;

/// The allocations of features with which tests are built, such as `metrics`: a guard that is measured is larger.
const INSTRUMENTS: f64 = 2.0;

/// Less than one allocation per pair: background work allocates from time to time.
const SLACK: f64 = 0.5;

/// The role: takes and releases locks, and reports the number of allocations per pair, on Redis and in memory.
pub(crate) async fn counter(mut console: Console) {
    let redis = super::client(console.hear().await).await;
    let memory = LockClient::new(MemoryStore::new());
    for client in [redis, memory] {
        pairs(&client, 100).await.expect("no other client is there");
        console.say("warm");
        console.hear().await;
        let before = allocations();
        pairs(&client, PAIRS)
            .await
            .expect("no other client is there");
        console.say((allocations() - before) as f64 / PAIRS as f64);
        console.hear().await;
    }
}

async fn pairs(client: &LockClient, pairs: usize) -> Result<(), LockError> {
    for _ in 0..pairs {
        client.lock("counted").await?.release().await?;
    }
    Ok(())
}

fn allocations() -> usize {
    let stats = HEAP.stats();
    stats.allocations + stats.reallocations
}

/// A future is part of that of its caller, and of the stack of the thread that makes it.
#[tokio::test]
async fn the_futures_of_callers_are_small() {
    let locks = LockClient::new(MemoryStore::new());
    let request = locks.lock("k");
    let guard = locks.lock("k").acquire().await.expect("free");
    let sizes = [
        (
            "connect",
            size_of_val(&RedisStore::connect("redis://host")),
            4096,
        ),
        ("a request", size_of_val(&request), 256),
        ("acquire", size_of_val(&request.acquire()), 1888),
        ("a guard", size_of_val(&guard), 160),
        ("release", size_of_val(&guard.release()), 640),
    ];
    for (what, size, limit) in sizes {
        assert!(size <= limit, "{what}: {size} bytes");
    }
}

#[tokio::test]
async fn a_pair_takes_two_commands_and_few_allocations() {
    let server = RedisServer::start().await;
    let mut peer = Peer::start("counter");
    peer.tell(server.url());
    peer.hear().await;
    let monitor = server.monitor().await;
    let on_redis = counted(&mut peer).await;
    let lines = monitor.lines().await;
    let sent = lines.iter().filter(|line| !line.contains(" lua]"));
    let commands: Vec<_> = sent.collect();
    assert!(
        commands.iter().all(|line| line.contains("\"EVALSHA\"")),
        "{commands:#?}"
    );
    // A process that was paused renews what it holds.
    let range = 2 * PAIRS..2 * PAIRS + PAIRS / 10;
    assert!(range.contains(&commands.len()), "{}", commands.len());
    assert_eq!(peer.hear().await, "warm");
    let in_memory = counted(&mut peer).await;
    println!("allocations of a pair: {on_redis} on Redis, {in_memory} in memory");
    assert!(on_redis < 10.0 + INSTRUMENTS + SLACK, "{on_redis}");
    assert!(in_memory < 2.0 + INSTRUMENTS + SLACK, "{in_memory}");
}

/// The guard of many keys, and all guards at the shutdown, end by one script for each key.
#[tokio::test]
async fn each_of_many_keys_ends_by_one_script() {
    const KEYS: usize = 250;
    let server = RedisServer::start().await;
    for mode in super::MODES {
        let locks = super::client(server.url()).await;
        let keys = || (0..KEYS).map(|n| format!("{mode:?}:{n}"));
        let both = || locks.lock_all(keys()).mode(mode).wait(super::SOON);
        both().await.expect("free").release().await.expect("held");

        let guard = both().await.expect("free");
        let released = scripts(&server, async {
            guard.release().await.expect("held");
        });
        let released = released.await;
        assert_eq!(released, KEYS, "{mode:?}");

        let mut guards = Vec::new();
        for key in keys() {
            guards.push(locks.lock(key).mode(mode).await.expect("free"));
        }
        let ended = scripts(&server, async {
            locks.shutdown(super::SOON).await.expect("in time");
        });
        let ended = ended.await;
        assert_eq!(ended, KEYS, "{mode:?}");
        drop(guards);
        super::until_nothing_is_left(&server).await;
    }
}

/// The number of scripts that Redis runs for `work`.
async fn scripts(server: &RedisServer, work: impl Future<Output = ()>) -> usize {
    let monitor = server.monitor().await;
    work.await;
    let lines = monitor.lines().await;
    // A new connection checks its rights.
    let is_script =
        |line: &&String| line.contains(r#"] "EVALSHA""#) && !line.contains("tower_lock_rights");
    lines.iter().filter(is_script).count()
}

/// The first question, the question at its turn, and the release. No request asks again only because it has subscribed.
#[tokio::test]
async fn a_fair_section_in_a_crowd_takes_three_scripts() {
    const CROWD: usize = 16;
    let server = RedisServer::start().await;
    let locks = super::client(server.url()).await;
    super::know_scripts(&locks, LockMode::Fair).await;
    let fair = || locks.lock("crowd").mode(LockMode::Fair).wait(super::SOON);
    let monitor = server.monitor().await;
    let began = Instant::now();
    let holder = fair().await.expect("free");
    let crowd = (0..CROWD).map(|_| {
        let asked = fair();
        tokio::spawn(async move {
            let guard = asked.await.expect("it is passed on");
            guard.release().await.expect("held");
        })
    });
    let crowd: Vec<_> = crowd.collect();
    eventually("all are in the queue", super::SOON, async || {
        let queued: usize = server.ask(&["LLEN", "redisson_lock_queue:{crowd}"]).await;
        queued == CROWD
    })
    .await;
    holder.release().await.expect("held");
    for waiter in crowd {
        waiter.await.expect("it does not panic");
    }
    // Long waits poll from time to time.
    let polls = CROWD * (began.elapsed().as_millis() / 750) as usize;
    let lines = monitor.lines().await;
    let scripts = lines.iter().filter(|line| line.contains("\"EVALSHA\""));
    let scripts = scripts.count();
    assert!(
        scripts <= 2 + 3 * CROWD + polls,
        "{scripts} with {polls} polls"
    );
}

async fn counted(peer: &mut Peer) -> f64 {
    peer.tell("begin");
    let counted = peer.hear().await;
    peer.tell("go on");
    counted.parse().expect("a number")
}

#[test]
fn a_pair_wakes_no_thread_but_for_its_answers() {
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = woken.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_unpark(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .expect("a runtime");
    let per_pair = runtime.block_on(async {
        let server = RedisServer::start().await;
        let client = super::client(server.url()).await;
        // In a task, because the thread that drives the runtime is not one of its workers.
        let counted = tokio::spawn(async move {
            pairs(&client, 100).await.expect("no other client is there");
            let before = woken.load(Ordering::Relaxed);
            pairs(&client, PAIRS)
                .await
                .expect("no other client is there");
            woken.load(Ordering::Relaxed) - before
        });
        counted.await.expect("it does not panic") as f64 / PAIRS as f64
    });
    assert!(per_pair < 2.5, "{per_pair}");
}
