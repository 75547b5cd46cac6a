//! The time from the release of one client to the grant of another that waits.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tower_distributed_lock::LockMode;

use crate::Bench;
use crate::contender::{Contender, Locks, Section};
use crate::cores::Apart;
use crate::recipe::Recipe;
use crate::report::Target::AtMost;
use crate::samples::{Latencies, Time};
use crate::server::Server;
use crate::wire::{self, Handle};

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let apart = Apart::begin(&server);
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
        let latency = handoffs(contender, &server, rounds).await?;
        bench
            .report
            .note(&format!("    {:<22} {latency}", contender.name()));
    }
    drop(apart);
    let what = "hand-off to another client, median";
    judge(bench, &server, Contender::Confirmed, what, 2.1).await
}

/// Hand-offs of a mode of this crate, and the time of its commands alone.
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
    let mode = match contender {
        Contender::Fair => LockMode::Fair,
        _ => LockMode::Reentrant,
    };
    let recipe = Recipe::learn(server, mode).await?;
    let handle = Handle::connect(server, &recipe, 1).await?;
    let apart = Apart::begin(server);
    let (mut latencies, mut commands, mut pings) =
        (Latencies::new(), Latencies::new(), Latencies::new());
    for _ in 0..bench.repetitions(20) {
        pings.merge(&wire::pings(server, 8, PAUSE).await?);
        commands.merge(&handle.rested(8, PAUSE).await?);
        latencies.merge(&handoffs(contender, server, 1).await?);
    }
    let beside = |bare: &Latencies| latencies.median().as_secs_f64() / bare.median().as_secs_f64();
    bench.report.row(
        &format!("{what} / one of its commands on a bare handle, after as long a pause"),
        AtMost(most),
        beside(&commands),
        format!(
            "{latencies}; a command {}; {}",
            Time(commands.median()),
            Apart::note(apart.as_ref())
        ),
    );
    bench.report.fact(
        &format!("{what} / a PING on a socket of the task's own"),
        beside(&pings),
        format!("a PING {}", Time(pings.median())),
    );
    Ok(())
}

/// The time from the begin of one client's release until another client, with connections of its own, has the
/// lock.
async fn handoffs(contender: Contender, server: &Server, repetitions: usize) -> Result<Latencies> {
    let holder = Arc::new(contender.connect(server.url()).await?);
    let waiter = Arc::new(contender.connect(server.url()).await?);
    let mut latencies = Latencies::new();
    for _ in 0..repetitions {
        for round in 0..8 {
            let holding = tokio::spawn(stay(holder.clone(), PAUSE + Duration::from_millis(2)));
            tokio::time::sleep(Duration::from_millis(2)).await;
            let waiting = tokio::spawn(stay(waiter.clone(), Duration::ZERO));
            let released = holding.await??.left;
            let entered = waiting.await??.entered;
            // The first round is a warm-up.
            if round > 0 {
                latencies.record(entered.saturating_duration_since(released));
            }
        }
    }
    Ok(latencies)
}

/// The pause before each release, and before each command that it is compared with.
const PAUSE: Duration = Duration::from_millis(4);

async fn stay(locks: Arc<Locks>, hold: Duration) -> Result<Section> {
    locks.section("handed", hold).await
}
