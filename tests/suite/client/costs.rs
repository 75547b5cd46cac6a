//! What a lock costs, in counts: figures that are promised, and that no busy machine changes.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_distributed_lock::{LockClient, LockError, MemoryStore};

use crate::support::{Console, Peer, RedisServer};

/// Counts, in every process of this binary; only those of a peer, which does nothing else, mean something.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 500;

/// What the feature `metrics` takes for itself: tests are built with it, and users' programs are not unless they ask for it.
const INSTRUMENTS: f64 = 4.0;

/// The role: takes and releases locks, and says how often it has allocated for a pair, on Redis and in memory.
pub(crate) async fn counter(mut console: Console) {
    let redis = super::client(console.hear().await).await;
    let memory = LockClient::new(MemoryStore::new());
    for client in [redis, memory] {
        pairs(&client, 100).await.expect("nobody else is there");
        console.say("warm");
        console.hear().await;
        let before = allocations();
        pairs(&client, PAIRS).await.expect("nobody else is there");
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
    assert_eq!(commands.len(), 2 * PAIRS);
    assert_eq!(peer.hear().await, "warm");
    let in_memory = counted(&mut peer).await;
    assert!(on_redis <= 20.0 + INSTRUMENTS, "{on_redis}");
    assert!(in_memory <= 10.0 + INSTRUMENTS, "{in_memory}");
}

async fn counted(peer: &mut Peer) -> f64 {
    peer.tell("begin");
    let counted = peer.hear().await;
    peer.tell("go on");
    counted.parse().expect("a number")
}
