//! From one client to another that waits: how long a free lock stays free.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::Bench;
use crate::contender::{Contender, Locks, Section};
use crate::report::Target::AtMost;
use crate::samples::{Latencies, Time};
use crate::server::Server;
use crate::wire;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let bare = wire::pings(&server, 2_000).await?.median();
    let mut ours = None;
    for (contender, rounds) in [
        (Contender::Confirmed, 150),
        (Contender::Redisson, 150),
        (Contender::Rslock, 15),
        (Contender::Rlock, 15),
        (Contender::AsyncRedisLock, 15),
    ] {
        bench
            .report
            .progress(&format!("hand-off: {}", contender.name()));
        let latency = handoffs(contender, &server, bench.repetitions(rounds)).await?;
        bench
            .report
            .note(&format!("    {:<22} {latency}", contender.name()));
        ours.get_or_insert(latency);
    }
    if let Some(latency) = ours {
        let ratio = latency.median().as_secs_f64() / bare.as_secs_f64();
        let beside = format!("{latency}; a round trip {}", Time(bare));
        bench.report.row(
            "hand-off to another client, median / round trip",
            AtMost(2.0),
            ratio,
            beside,
        );
    }
    Ok(())
}

/// From the moment at which one client begins to release until another, with connections of its own, has the lock.
pub(crate) async fn handoffs(
    contender: Contender,
    server: &Server,
    rounds: usize,
) -> Result<Latencies> {
    let holder = Arc::new(contender.connect(server.url()).await?);
    let waiter = Arc::new(contender.connect(server.url()).await?);
    let mut latencies = Latencies::new();
    for round in 0..rounds + 5 {
        let holding = tokio::spawn(stay(holder.clone(), Duration::from_millis(6)));
        tokio::time::sleep(Duration::from_millis(2)).await;
        let waiting = tokio::spawn(stay(waiter.clone(), Duration::ZERO));
        let released = holding.await??.left;
        let entered = waiting.await??.entered;
        // The first few are for warming up.
        if round >= 5 {
            latencies.record(entered.saturating_duration_since(released));
        }
    }
    Ok(latencies)
}

async fn stay(locks: Arc<Locks>, hold: Duration) -> Result<Section> {
    locks.section("handed", hold).await
}
