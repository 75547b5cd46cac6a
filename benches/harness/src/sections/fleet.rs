//! One key that many processes want: the cost of a section against the number of waiters.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use plotters::style::RGBColor;
use tokio::task::JoinSet;

use crate::Bench;
use crate::contender::{Contender, Locks};
use crate::load::{Load, Until};
use crate::plot::{self, Chart, Curve};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Latencies, Rate, Time, jain, median};
use crate::server::Server;

const KEY: &str = "fleet";
const SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

const CONTENDERS: [(Contender, RGBColor); 4] = [
    (Contender::Write, RGBColor(0x0b, 0x7a, 0x75)),
    (Contender::Confirmed, RGBColor(0x19, 0xb5, 0x9f)),
    (Contender::Fair, RGBColor(0x7b, 0x5e, 0xa7)),
    (Contender::Redisson, RGBColor(0xd6, 0x55, 0x0f)),
];

/// The figures of one contender at one size, one of each per repetition.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    scripts: Vec<f64>,
    messages: Vec<f64>,
    jain: Vec<f64>,
    /// The worst wait, as a multiple of one section of every other client.
    worst: Vec<f64>,
    /// The same without the first wait of each client: at the start all ask, and subscribe, at once.
    later: Vec<f64>,
    /// The longest wait after the start, counted in sections of others: how long it is if the machine never pauses.
    before: Vec<f64>,
}

/// What all clients have seen together.
struct Turnout {
    shares: Vec<u64>,
    waits: Latencies,
    later: Latencies,
    most_before: u64,
}

/// Each client has a store and connections of its own, like a process. They share one process here, because of the few
/// cores of the machine.
pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let (mut rates, mut scripts) = (Vec::new(), Vec::new());
    for (contender, color) in CONTENDERS {
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
        let curve = |figure: fn(&Figures) -> &Vec<f64>| Curve {
            name: contender.name(),
            color,
            points: SIZES
                .iter()
                .zip(&all)
                .map(|(clients, figures)| (*clients as f64, median(figure(figures))))
                .collect(),
        };
        rates.push(curve(|figures| &figures.rates));
        scripts.push(curve(|figures| &figures.scripts));
    }
    if bench.quick {
        return Ok(());
    }
    let clients = ("processes", 1.0..150.0);
    let rates = Chart {
        caption: "Critical sections per second on one key, one waiter a process",
        x: clients.clone(),
        y: ("sections per second", 50.0..20_000.0),
        curves: &rates,
    };
    let scripts = Chart {
        caption: "Scripts a section",
        x: clients,
        y: ("scripts", 1.0..200.0),
        curves: &scripts,
    };
    plot::write(&[rates, scripts], "fleet.svg")
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
    let turnout = loads(&fleet, Until::After(time)).await?;
    let sections = turnout.shares.iter().sum::<u64>() as f64;
    let a_section = time.as_secs_f64() / sections;
    figures.rates.push(1.0 / a_section);
    figures
        .scripts
        .push((server.scripts().await? - scripts) as f64 / sections);
    figures
        .messages
        .push((server.messages().await? - messages) as f64 / sections);
    figures.jain.push(jain(&turnout.shares));
    let all = a_section * clients as f64;
    figures
        .worst
        .push(turnout.waits.worst().as_secs_f64() / all);
    figures
        .later
        .push(turnout.later.worst().as_secs_f64() / all);
    figures
        .before
        .push(turnout.most_before as f64 / clients as f64);
    Ok(())
}

/// Makes every client enter one section after the other.
async fn loads(fleet: &[Arc<Locks>], until: Until) -> Result<Turnout> {
    let mut working = JoinSet::new();
    for locks in fleet {
        let locks = locks.clone();
        working.spawn(async move { Load::on(KEY, 1, until).run_now(&locks).await });
    }
    let mut turnout = Turnout {
        shares: Vec::new(),
        waits: Latencies::new(),
        later: Latencies::new(),
        most_before: 0,
    };
    while let Some(done) = working.join_next().await {
        let outcome = done??;
        turnout.shares.push(outcome.sections);
        turnout.waits.merge(&outcome.waits);
        turnout.later.merge(&outcome.later);
        turnout.most_before = turnout.most_before.max(outcome.most_before);
    }
    Ok(turnout)
}

fn show(bench: &Bench, contender: Contender, clients: usize, figures: &Figures) {
    bench.report.note(&format!(
        "    {:<22} {clients:>4} clients: {:>9}, {:.2} scripts, {:.2} messages, Jain {:.3}, worst wait {:.1} × ({clients} sections), {}; after the start {:.1} ×, that is {:.2} × in sections",
        contender.name(),
        Rate(median(&figures.rates)).to_string(),
        median(&figures.scripts),
        median(&figures.messages),
        median(&figures.jain),
        median(&figures.worst),
        Time(Duration::from_secs_f64(
            median(&figures.worst) * clients as f64 / median(&figures.rates)
        )),
        median(&figures.later),
        median(&figures.before),
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
    for (name, figures, two) in [
        (
            "worst wait / 128 sections, without the start",
            &most.later,
            &two.later,
        ),
        (
            "the same, counted in sections of others",
            &most.before,
            &two.before,
        ),
    ] {
        let beside = format!("with 2 clients {:.2}", median(two));
        bench
            .report
            .row(&what(name), AtMost(1.5), median(figures), beside);
    }
}
