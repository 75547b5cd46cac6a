//! The layer around an empty handler, every request with a key of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::Bench;
use crate::cores::Apart;
use crate::http::Site;
use crate::meter::{Meter, Spent, each};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, median, ratio, spread};
use crate::server::Server;

mod sites;

use sites::*;

const SITES: [&str; 8] = [
    NO_LAYER,
    BOX,
    MEMORY,
    REDIS,
    DEADLINE,
    COMMANDS,
    MEMORY_CONSOLE,
    REDIS_CONSOLE,
];

const IN_ONE_THREAD: [&str; 4] = [BOX, MEMORY, COMMANDS, REDIS];

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Arc::new(Server::start().await?);
    let mut all = Vec::new();
    for name in SITES {
        all.push(Answers::of(name, serve(name, &server).await?));
    }
    latency(bench, &server, &mut all).await?;
    let mut alone = Vec::new();
    let one_thread = OneThread::start()?;
    for name in IN_ONE_THREAD {
        alone.push(Answers::of(name, one_thread.serve(name, &server).await?));
    }
    throughput(bench, &server, &mut all, &mut alone).await
}

/// One connection.
async fn latency(bench: &mut Bench, server: &Server, all: &mut [Answers]) -> Result<()> {
    let apart = Apart::begin(server);
    for repetition in 0..=bench.repetitions(15) {
        bench
            .report
            .progress(&format!("layer, 1 connection, repetition {repetition}"));
        for answers in all.iter_mut() {
            answers.measure(server, 1, repetition > 0).await?;
        }
    }
    let time = |seconds: f64| Time(Duration::from_secs_f64(seconds.max(0.0)));
    show(bench, 1, all);
    let without = &of(all, NO_LAYER).latencies;
    let added = |name: &str| -> Vec<f64> {
        let with = of(all, name).latencies.iter().zip(without);
        with.map(|(with, without)| with - without).collect()
    };
    let (ours, bare) = (added(REDIS), added(COMMANDS));
    bench.report.row(
        "layer on Redis, added latency / that of its two commands on a bare handle",
        AtMost(1.1),
        ratio(&ours, &bare),
        format!(
            "{} against {}; {}, {}",
            time(median(&ours)),
            time(median(&bare)),
            spread(&ours, &bare),
            Apart::note(apart.as_ref())
        ),
    );
    all.iter_mut().for_each(Answers::forget);
    Ok(())
}

/// 64 connections.
async fn throughput(
    bench: &mut Bench,
    server: &Server,
    all: &mut [Answers],
    alone: &mut [Answers],
) -> Result<()> {
    for repetition in 0..=bench.repetitions(15) {
        bench
            .report
            .progress(&format!("layer, 64 connections, repetition {repetition}"));
        for answers in all.iter_mut().chain(alone.iter_mut()) {
            answers.measure(server, 64, repetition > 0).await?;
        }
    }
    show(bench, 64, all);
    costs(bench, all, alone);
    let report = &mut bench.report;
    for (threads, answers) in [("", &*all), (", one thread", &*alone)] {
        for (place, than, ours, theirs) in [
            (
                "on Redis",
                "its two commands on a bare handle",
                REDIS,
                COMMANDS,
            ),
            ("in memory", "a layer that boxes", MEMORY, BOX),
        ] {
            let (ours, theirs) = (of(answers, ours).own(), of(answers, theirs).own());
            report.fact(
                &format!(
                    "layer {place}, 64 connections{threads}: µs of the HTTP server, more than {than}"
                ),
                ours - theirs,
                format!("{ours:.1} µs against {theirs:.1} µs"),
            );
        }
    }
    // The two commands are the prototype of the layer.
    let console = ": with a console that is not looked at / without";
    for (what, target, ours, theirs) in [
        (
            "on Redis, 64 connections / its two commands on a bare handle",
            0.9,
            REDIS,
            COMMANDS,
        ),
        (
            "in memory, 64 connections / a layer that boxes",
            0.9,
            MEMORY,
            BOX,
        ),
        (
            &format!("in memory, 64 connections{console}"),
            0.97,
            MEMORY_CONSOLE,
            MEMORY,
        ),
        (
            &format!("on Redis, 64 connections{console}"),
            0.97,
            REDIS_CONSOLE,
            REDIS,
        ),
    ] {
        let (ours, theirs) = (&of(all, ours).rates, &of(all, theirs).rates);
        report.row(
            &format!("layer {what}"),
            AtLeast(target),
            ratio(ours, theirs),
            format!("{} of {}", Rate(median(ours)), Rate(median(theirs))),
        );
    }
    Ok(())
}

/// What a site has answered.
struct Answers {
    name: &'static str,
    site: Site,
    rates: Vec<f64>,
    /// The medians, in seconds.
    latencies: Vec<f64>,
    requests: f64,
    spent: Spent,
}

impl Answers {
    fn of(name: &'static str, site: Site) -> Self {
        Self {
            name,
            site,
            rates: Vec::new(),
            latencies: Vec::new(),
            requests: 0.0,
            spent: Spent::NOTHING,
        }
    }

    /// A repetition. The first one is a warm-up, and not `counted`.
    async fn measure(&mut self, server: &Server, connections: usize, counted: bool) -> Result<()> {
        let meter = Meter::begin(server)?;
        let load = self
            .site
            .load(connections, Duration::from_millis(120))
            .await?;
        let mut spent = meter.end()?;
        spent.clients = load.clients;
        if counted {
            self.rates.push(load.rate());
            self.latencies.push(load.latencies.median().as_secs_f64());
            self.requests += load.latencies.len() as f64;
            self.spent += spent;
        }
        Ok(())
    }

    /// The processor time of the HTTP server for a request, in µs.
    fn own(&self) -> f64 {
        self.spent.own.as_secs_f64() * 1e6 / self.requests
    }

    fn forget(&mut self) {
        self.rates.clear();
        self.latencies.clear();
        self.requests = 0.0;
        self.spent = Spent::NOTHING;
    }
}

fn of<'a>(all: &'a [Answers], name: &str) -> &'a Answers {
    let mut all = all.iter();
    all.find(|answers| answers.name == name)
        .expect("each name has a site")
}

fn show(bench: &Bench, connections: usize, all: &[Answers]) {
    let without = &of(all, NO_LAYER).rates;
    for answers in all {
        bench.report.note(&format!(
            "    {connections:>2} connections, {:<24} {} ({:.2}), median {}",
            answers.name,
            Rate(median(&answers.rates)),
            ratio(&answers.rates, without),
            Time(Duration::from_secs_f64(median(&answers.latencies)))
        ));
    }
}

/// The table of costs.
fn costs(bench: &mut Bench, all: &[Answers], alone: &[Answers]) {
    let mut table = String::from(
        "## Where the time of a request goes\n\n64 connections; processor time and idle time of all cores, of each request. What is \
         missing in the sum is other work of the machine.\n\n\
         | what answers | HTTP server, µs | Redis, µs | HTTP clients, µs | idle, µs | all cores, µs |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (threads, answers) in [("", all), (", with one thread for the HTTP server", alone)] {
        for Answers {
            name,
            requests,
            spent,
            ..
        } in answers
        {
            let Spent {
                own,
                redis,
                clients,
                idle,
                all,
            } = *spent;
            let times = [own, redis, clients, idle, all].map(|time| each(time, *requests));
            table += &format!("| {name}{threads} | {} |\n", times.join(" | "));
        }
    }
    bench.report.note(&table);
    bench.report.append(&table);
}
