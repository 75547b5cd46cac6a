//! Many readers of one key, and a writer among them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use crate::Bench;
use crate::contender::Contender;
use crate::load::{Load, Until};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Latencies, Rate, Time, median, ratio};
use crate::server::Server;
use crate::wire;

const READERS: usize = 64;

/// How long a read hold accepts new readers; the client's default.
const SHARE_WINDOW: Duration = Duration::from_millis(5);

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let unshared = Arc::new(Contender::ReadUnshared.connect(server.url()).await?);
    let apart = Arc::new(Contender::Read.connect(server.url()).await?);
    let time = Until::After(Duration::from_millis(400));
    let one_key = Load::on("read", READERS, time);
    for contender in [Contender::Read, Contender::ReadUnconfirmed] {
        let locks = Arc::new(contender.connect(server.url()).await?);
        let (mut together, mut each, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for repetition in 0..bench.repetitions(5) {
            bench.report.progress(&format!(
                "{READERS} readers, repetition {}: {}",
                repetition + 1,
                contender.name()
            ));
            together.push(one_key.run_now(&locks).await?.rate());
            each.push(one_key.run_now(&unshared).await?.rate());
            alone.push(Load::apart(READERS, time).run_now(&apart).await?.rate());
        }
        let ending = match contender {
            Contender::Read => "",
            _ => ", unconfirmed",
        };
        bench.report.row(
            &format!("hot reads, 64 tasks{ending} / an acquire and a release for each"),
            AtLeast(20.0),
            ratio(&together, &each),
            format!(
                "{} against {} with nothing shared",
                Rate(median(&together)),
                Rate(median(&each))
            ),
        );
        bench.report.fact(
            &format!("hot reads, 64 tasks{ending} / a pair for each on a key of its own"),
            ratio(&together, &alone),
            format!(
                "{} against {}",
                Rate(median(&together)),
                Rate(median(&alone))
            ),
        );
    }
    writer(bench, &server).await
}

/// A writer in another client, during continuous reads of a millisecond.
async fn writer(bench: &mut Bench, server: &Server) -> Result<()> {
    let bare = wire::pings(server, 2_000, Duration::ZERO).await?.median();
    let readers = Arc::new(Contender::Read.connect(server.url()).await?);
    let mut ratios = Vec::new();
    let mut seen = String::new();
    for repetition in 0..bench.repetitions(3) {
        bench.report.progress(&format!(
            "a writer among readers, repetition {}",
            repetition + 1
        ));
        let load = Load::on(
            "written",
            READERS,
            Until::After(Duration::from_millis(1_000)),
        );
        let load = load.holding(Duration::from_millis(1));
        let writing = tokio::spawn(write(server.url().to_owned(), Duration::from_millis(900)));
        let reads = load.run_now(&readers).await?;
        let waits = writing.await??;
        let bound = SHARE_WINDOW + reads.longest + 2 * bare;
        ratios.push(waits.worst().as_secs_f64() / bound.as_secs_f64());
        seen = format!(
            "{waits}, of {}; longest read {}; {} reads",
            waits.len(),
            Time(reads.longest),
            reads.sections
        );
    }
    let what = "a writer's worst wait / share window + longest read + 2 round trips";
    bench.report.row(what, AtMost(1.0), median(&ratios), seen);
    Ok(())
}

async fn write(url: String, time: Duration) -> Result<Latencies> {
    let client = LockClient::new(RedisStore::connect(url).await?);
    let (mut waits, began) = (Latencies::new(), Instant::now());
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let asked = Instant::now();
        let guard = client.lock("written").mode(LockMode::Write).await?;
        waits.record(asked.elapsed());
        guard.release().await?;
    }
    Ok(waits)
}
