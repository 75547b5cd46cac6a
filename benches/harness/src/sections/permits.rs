//! Permits of one key that many requests of two processes want: the cost of a section.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::Bench;
use crate::contender::{Contender, Locks};
use crate::load::{Load, Until};
use crate::report::Target::AtMost;
use crate::samples::{Latencies, Rate, median};
use crate::server::Server;

const KEY: &str = "permits";

/// The number of permits.
const LIMIT: u32 = 8;

const PROCESSES: usize = 2;

/// The number of requests in all.
const REQUESTS: usize = 64;

/// How long a request holds its permit.
const HOLD: Duration = Duration::from_millis(2);

/// The figures of each repetition.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    scripts: Vec<f64>,
    messages: Vec<f64>,
    /// The worst wait, as a multiple of the time that one turn of all requests takes.
    worst: Vec<f64>,
}

/// Each client has a store and connections of its own, like a process.
pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    bench.report.progress("permits");
    let mut figures = Figures::default();
    for _ in 0..bench.repetitions(3) {
        measure(bench, &mut figures).await?;
    }
    let what = |what: &str| format!("{LIMIT} permits, {REQUESTS} requests, 2 processes: {what}");
    let beside = format!("{} sections", Rate(median(&figures.rates)));
    for (name, target, figures) in [
        ("scripts a section", AtMost(4.0), &figures.scripts),
        ("messages a section", AtMost(3.0), &figures.messages),
        ("worst wait / one turn of all", AtMost(3.0), &figures.worst),
    ] {
        let measured = median(figures);
        bench
            .report
            .row(&what(name), target, measured, beside.clone());
    }
    Ok(())
}

async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let server = Server::start().await?;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let locks = Contender::Permits(LIMIT).connect(server.url()).await?;
        processes.push(Arc::new(locks));
    }
    // Each connects and loads its scripts.
    load(&processes, Until::Rounds(2)).await?;
    let time = Duration::from_millis(if bench.quick { 1_000 } else { 3_000 });
    let (scripts, messages) = (server.scripts().await?, server.messages().await?);
    let (sections, waits) = load(&processes, Until::After(time)).await?;
    let sections = sections as f64;
    let turn = time.as_secs_f64() / sections * REQUESTS as f64;
    figures.rates.push(sections / time.as_secs_f64());
    let scripts = server.scripts().await? - scripts;
    figures.scripts.push(scripts as f64 / sections);
    let messages = server.messages().await? - messages;
    figures.messages.push(messages as f64 / sections);
    figures.worst.push(waits.worst().as_secs_f64() / turn);
    Ok(())
}

async fn load(processes: &[Arc<Locks>], until: Until) -> Result<(u64, Latencies)> {
    let mut working = JoinSet::new();
    for locks in processes {
        let locks = locks.clone();
        let load = Load::on(KEY, REQUESTS / PROCESSES, until).holding(HOLD);
        working.spawn(async move { load.run_now(&locks).await });
    }
    let (mut sections, mut waits) = (0, Latencies::new());
    while let Some(done) = working.join_next().await {
        let outcome = done??;
        sections += outcome.sections;
        waits.merge(&outcome.waits);
    }
    Ok((sections, waits))
}
