//! One key that many processes want: the cost of a section against the number of waiters.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use crate::Bench;
use crate::contender::{Contender, Locks};
use crate::load::{Load, Until};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Latencies, Rate, Time, jain, median};
use crate::server::Server;

const KEY: &str = "fleet";
const SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The figures of one contender at one size, one of each per repetition.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    scripts: Vec<f64>,
    messages: Vec<f64>,
    jain: Vec<f64>,
    /// The worst wait, as a multiple of one section of every other client.
    worst: Vec<f64>,
}

/// Each client has a store and connections of its own, like a process. They share one process here, because of the few
/// cores of the machine.
pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for contender in [
        Contender::Write,
        Contender::Confirmed,
        Contender::Fair,
        Contender::Redisson,
    ] {
        let mut all = Vec::new();
        for clients in SIZES {
            bench
                .report
                .progress(&format!("fleet, {}, {clients} clients", contender.name()));
            let mut figures = Figures::default();
            for _ in 0..bench.repetitions(3) {
                measure(bench, contender, clients, &mut figures).await?;
            }
            show(bench, contender, clients, &figures);
            all.push(figures);
        }
        if contender != Contender::Redisson {
            judge(bench, contender, &all);
        }
    }
    Ok(())
}

async fn measure(
    bench: &Bench,
    contender: Contender,
    clients: usize,
    figures: &mut Figures,
) -> Result<()> {
    let server = Server::start().await?;
    let fleet = (0..clients).map(|_| contender.connect(server.url()));
    let fleet: Vec<_> = try_join_all(fleet)
        .await?
        .into_iter()
        .map(Arc::new)
        .collect();
    // Each connects and loads its scripts.
    loads(&fleet, Until::Rounds(2)).await?;
    let time = Duration::from_millis(if bench.quick { 1_000 } else { 3_000 });
    let (scripts, messages) = (server.scripts().await?, server.messages().await?);
    let (shares, waits) = loads(&fleet, Until::After(time)).await?;
    let sections = shares.iter().sum::<u64>() as f64;
    let a_section = time.as_secs_f64() / sections;
    figures.rates.push(1.0 / a_section);
    figures
        .scripts
        .push((server.scripts().await? - scripts) as f64 / sections);
    figures
        .messages
        .push((server.messages().await? - messages) as f64 / sections);
    figures.jain.push(jain(&shares));
    figures
        .worst
        .push(waits.worst().as_secs_f64() / (a_section * clients as f64));
    Ok(())
}

/// Makes every client enter one section after the other.
async fn loads(fleet: &[Arc<Locks>], until: Until) -> Result<(Vec<u64>, Latencies)> {
    let mut working = JoinSet::new();
    for locks in fleet {
        let locks = locks.clone();
        working.spawn(async move { Load::on(KEY, 1, until).run_now(&locks).await });
    }
    let (mut shares, mut waits) = (Vec::new(), Latencies::new());
    while let Some(done) = working.join_next().await {
        let outcome = done??;
        shares.push(outcome.sections);
        waits.merge(&outcome.waits);
    }
    Ok((shares, waits))
}

fn show(bench: &Bench, contender: Contender, clients: usize, figures: &Figures) {
    bench.report.note(&format!(
        "    {:<22} {clients:>4} clients: {:>9}, {:.2} scripts, {:.2} messages, Jain {:.3}, worst wait {:.1} × ({clients} sections), {}",
        contender.name(),
        Rate(median(&figures.rates)).to_string(),
        median(&figures.scripts),
        median(&figures.messages),
        median(&figures.jain),
        median(&figures.worst),
        Time(Duration::from_secs_f64(
            median(&figures.worst) * clients as f64 / median(&figures.rates)
        )),
    ));
}

fn judge(bench: &mut Bench, contender: Contender, all: &[Figures]) {
    let [_, two, .., most] = all else { return };
    let what = |what: &str| format!("fleet of 128, {}: {what}", contender.name());
    let (here, there) = (median(&most.rates), median(&two.rates));
    let beside = format!("{} against {}", Rate(here), Rate(there));
    bench.report.row(
        &what("sections / those of 2 clients"),
        AtLeast(0.5),
        here / there,
        beside,
    );
    for (name, figures, two, target) in [
        (
            "scripts a section",
            &most.scripts,
            &two.scripts,
            AtMost(4.0),
        ),
        (
            "messages a section",
            &most.messages,
            &two.messages,
            AtMost(2.0),
        ),
        ("Jain's index", &most.jain, &two.jain, AtLeast(0.99)),
        (
            "worst wait / 128 sections",
            &most.worst,
            &two.worst,
            AtMost(1.5),
        ),
    ] {
        let beside = format!("with 2 clients {:.2}", median(two));
        bench
            .report
            .row(&what(name), target, median(figures), beside);
    }
}
