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
use crate::samples::{Latencies, Rate, Time, digits, jain, median};
use crate::server::Server;

mod readers;
mod token;

const KEY: &str = "fleet";
const SIZES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

const CONTENDERS: [(Contender, RGBColor); 6] = [
    (Contender::Write, RGBColor(0x0b, 0x7a, 0x75)),
    (Contender::Confirmed, RGBColor(0x19, 0xb5, 0x9f)),
    (Contender::Fair, RGBColor(0x7b, 0x5e, 0xa7)),
    (Contender::Permits(1), RGBColor(0x2f, 0x6d, 0xb5)),
    (Contender::Permits(8), RGBColor(0x8a, 0x8a, 0x8a)),
    (Contender::Redisson, RGBColor(0xd6, 0x55, 0x0f)),
];

/// How long a repetition lasts.
const TIME: Duration = Duration::from_secs(3);

/// The longest wait, as a multiple of one section of every client.
const WORST: f64 = 1.5;

/// The figures of one contender at one size, one of each per repetition.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    scripts: Vec<f64>,
    messages: Vec<f64>,
    jain: Vec<f64>,
    /// The worst wait, as a multiple of one section of every client.
    worst: Vec<f64>,
    /// The longest wait after the start, counted in sections of others: how long it is if the machine never pauses.
    before: Vec<f64>,
}

/// What all clients have seen together.
struct Turnout {
    shares: Vec<u64>,
    waits: Latencies,
    most_before: u64,
}

impl Turnout {
    fn new() -> Self {
        Self {
            shares: Vec::new(),
            waits: Latencies::new(),
            most_before: 0,
        }
    }
}

/// The scripts and the messages of a server so far.
struct Counts {
    scripts: u64,
    messages: u64,
}

impl Counts {
    async fn of(server: &Server) -> Result<Self> {
        Ok(Self {
            scripts: server.scripts().await?,
            messages: server.messages().await?,
        })
    }

    /// Those since then.
    async fn since(&self, server: &Server) -> Result<Self> {
        let now = Self::of(server).await?;
        Ok(Self {
            scripts: now.scripts - self.scripts,
            messages: now.messages - self.messages,
        })
    }
}

impl Figures {
    /// Adds a repetition of `time`.
    fn add(&mut self, turnout: &Turnout, counts: &Counts, time: Duration) {
        let sections = turnout.shares.iter().sum::<u64>() as f64;
        let clients = turnout.shares.len() as f64;
        let a_section = time.as_secs_f64() / sections;
        self.rates.push(1.0 / a_section);
        self.scripts.push(counts.scripts as f64 / sections);
        self.messages.push(counts.messages as f64 / sections);
        self.jain.push(jain(&turnout.shares));
        let worst = turnout.waits.worst().as_secs_f64();
        self.worst.push(worst / (a_section * clients));
        self.before.push(turnout.most_before as f64 / clients);
    }

    /// The worst wait and the time of one section of every client, as texts.
    fn waits(&self, clients: usize) -> String {
        let turn = clients as f64 / median(&self.rates);
        let time = |seconds: f64| Time(Duration::from_secs_f64(seconds));
        let worst = time(median(&self.worst) * turn);
        format!("{worst} of {}", time(turn))
    }

    fn note(&self, bench: &Bench, name: &str, clients: usize) {
        bench.report.note(&format!(
            "    {name:<22} {clients:>4} clients: {:>9}, {:.2} scripts, {:.2} messages, Jain {:.3}, worst wait {:.2} × ({clients} sections), {}; {:.2} × in sections",
            Rate(median(&self.rates)).to_string(),
            median(&self.scripts),
            median(&self.messages),
            median(&self.jain),
            median(&self.worst),
            self.waits(clients),
            median(&self.before),
        ));
    }

    /// A row of the table of all sizes.
    fn line(&self, name: &str, clients: usize) -> String {
        let worst = median(&self.worst);
        let missed = if worst > WORST { " **NO**" } else { "" };
        format!(
            "| {name} | {clients} | {} | {:.2} | {:.2} | {:.3} | {}{missed} | {} | {:.2} |\n",
            Rate(median(&self.rates)),
            median(&self.scripts),
            median(&self.messages),
            median(&self.jain),
            digits(worst),
            self.waits(clients),
            median(&self.before),
        )
    }
}

/// The title of the table of all sizes.
const TABLE: &str = "## A fleet on one key\n\nOne waiter a process. A worst wait is judged by one section of every client, \
    at most 1.5 times as long; the last column has it in sections of others instead of seconds. The token is passed from task to \
    task on bare handles, by as many scripts and messages.\n\n\
    | what | clients | sections | scripts a section | messages a section | Jain's index | worst wait / one section of every client | the two times | counted in sections |\n\
    | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";

/// Each client has a store and connections of its own, like a process. They share one process here, because of the few
/// cores of the machine.
pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let (mut rates, mut scripts) = (Vec::new(), Vec::new());
    let mut table = TABLE.to_owned();
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
            figures.note(bench, contender.name(), clients);
            table += &figures.line(contender.name(), clients);
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
    table += &token::run(bench).await?;
    bench.report.append(&table);
    readers::run(bench).await?;
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
    // Neither the worst wait of one client nor that of Redisson's algorithm is judged.
    let is_judged = clients > 1 && contender != Contender::Redisson;
    let time = bench.time(if is_judged { TIME } else { TIME / 3 });
    let counts = Counts::of(&server).await?;
    let turnout = loads(&fleet, Until::After(time)).await?;
    figures.add(&turnout, &counts.since(&server).await?, time);
    Ok(())
}

/// Makes every client enter one section after the other.
async fn loads(fleet: &[Arc<Locks>], until: Until) -> Result<Turnout> {
    let mut working = JoinSet::new();
    for locks in fleet {
        let locks = locks.clone();
        working.spawn(async move { Load::on(KEY, 1, until).run_now(&locks).await });
    }
    let mut turnout = Turnout::new();
    while let Some(done) = working.join_next().await {
        let outcome = done??;
        turnout.shares.push(outcome.sections);
        turnout.waits.merge(&outcome.waits);
        turnout.most_before = turnout.most_before.max(outcome.most_before);
    }
    Ok(turnout)
}

fn judge(bench: &mut Bench, contender: Contender, all: &[Figures]) {
    // The fewest that wait for each other.
    let (few, messages) = match contender {
        Contender::Permits(limit) if limit > 1 => (2 * limit as usize, 3.0),
        _ => (2, 2.0),
    };
    let place = SIZES.iter().position(|clients| *clients == few);
    let (Some(least), Some(most)) = (place.map(|place| &all[place]), all.last()) else {
        return;
    };
    let what = |what: &str| format!("fleet of 128, {}: {what}", contender.name());
    let (here, there) = (median(&most.rates), median(&least.rates));
    let beside = format!("{} against {}", Rate(here), Rate(there));
    bench.report.row(
        &what(&format!("sections / those of {few} clients")),
        AtLeast(0.7),
        here / there,
        beside,
    );
    for (name, figures, least, target) in [
        (
            "scripts a section",
            &most.scripts,
            &least.scripts,
            AtMost(4.0),
        ),
        (
            "messages a section",
            &most.messages,
            &least.messages,
            AtMost(messages),
        ),
        ("Jain's index", &most.jain, &least.jain, AtLeast(0.99)),
        (
            "worst wait, counted in sections of others / 128",
            &most.before,
            &least.before,
            AtMost(WORST),
        ),
    ] {
        let beside = format!("with {few} clients {:.2}", median(least));
        bench
            .report
            .row(&what(name), target, median(figures), beside);
    }
    bench.report.row(
        &what("worst wait / 128 sections"),
        AtMost(WORST),
        median(&most.worst),
        format!(
            "{}; with {few} clients {:.2}",
            most.waits(128),
            median(&least.worst)
        ),
    );
}
