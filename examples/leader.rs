//! A scheduler of which one process of the fleet is the leader. Start it three times, and stop the leader.
//!
//! ```text
//! $ REDIS_URL=redis://127.0.0.1 cargo run --example leader &   # three times
//! candidate 4711
//! 4711 leads in term 1795320000123456
//! term 1795320000123456 tick 1
//! term 1795320000123456 tick 2
//! $ kill 4711                                                  # the next takes over at once
//! 4711 resigns
//! 4712 leads in term 1795320004123456
//! $ kill -9 4712                                               # the next takes over within the lease: 3 s
//! ```

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tower_distributed_lock::{Lease, LockClient, LockHandle, MemoryStore, RedisStore};

/// Runs for one term. When the term is lost, the future is dropped at its next `await`.
async fn schedule(lock: LockHandle) {
    let term = lock.fencing_token().map_or(0, |token| token.value());
    println!("{} leads in term {term}", std::process::id());
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    for tick in 1.. {
        ticks.tick().await;
        println!("term {term} tick {tick}");
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match std::env::var("REDIS_URL") {
        Ok(url) => LockClient::new(RedisStore::connect(url).await?),
        Err(_) => LockClient::new(MemoryStore::new()), // alone: the leader of one
    };
    let mut stop = signal(SignalKind::terminate())?;
    println!("candidate {}", std::process::id());
    let candidate = locks
        .lock("lock:scheduler")
        .lease(Lease::Renewed(Duration::from_secs(3)));
    tokio::select! {
        ended = candidate.lead(Duration::ZERO, schedule) => ended?,
        _ = stop.recv() => println!("{} resigns", std::process::id()),
    }
    // Releases the leadership, so that the next candidate need not wait for the lease to end.
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
