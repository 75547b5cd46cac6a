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
    for contender in [
        Contender::Redisson,
        Contender::Rslock,
        Contender::Rlock,
        Contender::AsyncRedisLock,
    ] {
        bench
            .report
            .progress(&format!("hand-off: {}", contender.name()));
        let rounds = bench.repetitions(if contender == Contender::Redisson {
            15
        } else {
            3
        });
        let (latency, _) = handoffs(contender, &server, rounds).await?;
        bench
            .report
            .note(&format!("    {:<22} {latency}", contender.name()));
    }
    judge(
        bench,
        &server,
        Contender::Confirmed,
        "hand-off to another client, median / round trip",
        2.0,
    )
    .await
}

/// Hand-offs of one of ours, beside round trips.
pub(super) async fn judge(
    bench: &mut Bench,
    server: &Server,
    contender: Contender,
    what: &str,
    most: f64,
) -> Result<()> {
    bench
        .report
        .progress(&format!("hand-off: {}", contender.name()));
    let (latency, bare) = handoffs(contender, server, bench.repetitions(20)).await?;
    let ratio = latency.median().as_secs_f64() / bare.median().as_secs_f64();
    let beside = format!(
        "{latency}; a round trip after as long a pause {}",
        Time(bare.median())
    );
    bench.report.row(what, AtMost(most), ratio, beside);
    Ok(())
}

/// From the moment at which one client begins to release until another, with connections of its own, has the lock; and
/// bare round trips in between.
async fn handoffs(
    contender: Contender,
    server: &Server,
    repetitions: usize,
) -> Result<(Latencies, Latencies)> {
    let holder = Arc::new(contender.connect(server.url()).await?);
    let waiter = Arc::new(contender.connect(server.url()).await?);
    let (mut latencies, mut bare) = (Latencies::new(), Latencies::new());
    for _ in 0..repetitions {
        bare.merge(&wire::pings(server, 8, PAUSE).await?);
        for round in 0..8 {
            let holding = tokio::spawn(stay(holder.clone(), PAUSE + Duration::from_millis(2)));
            tokio::time::sleep(Duration::from_millis(2)).await;
            let waiting = tokio::spawn(stay(waiter.clone(), Duration::ZERO));
            let released = holding.await??.left;
            let entered = waiting.await??.entered;
            // The first is for warming up.
            if round > 0 {
                latencies.record(entered.saturating_duration_since(released));
            }
        }
    }
    Ok((latencies, bare))
}

/// For how long everybody sleeps before a lock is released, and before a round trip that it is compared with.
const PAUSE: Duration = Duration::from_millis(4);

async fn stay(locks: Arc<Locks>, hold: Duration) -> Result<Section> {
    locks.section("handed", hold).await
}
