//! One key that all tasks want, in one process and in several.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;

use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
use crate::redisson::Live;
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Latencies, Rate, Time, jain, median, ratio, smallest_share};
use crate::server::Server;

pub(super) const WAITERS: usize = 64;
const KEY: &str = "hot";

/// The figures of one contender at one number of processes, one of each per repetition.
#[derive(Default)]
pub(super) struct Figures {
    burst: Vec<f64>,
    closed: Vec<f64>,
    /// Scripts per section, in the closed loop and in bursts.
    scripts: Vec<f64>,
    burst_scripts: Vec<f64>,
    jain: Vec<f64>,
    smallest: Vec<f64>,
    worst: Vec<f64>,
    burst_worst: Vec<f64>,
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let contenders = [
        Contender::Confirmed,
        Contender::Unconfirmed,
        Contender::Alone,
        Contender::Redisson,
    ];
    let server = Server::start().await?;
    for processes in [1, 2, 4] {
        let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
        let mut live = vec![];
        let mut machines = lives(bench, &server, processes).await;
        for repetition in 0..bench.repetitions(3) {
            bench.report.progress(&format!(
                "hot key, {processes} × {WAITERS}, repetition {}",
                repetition + 1
            ));
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                measure(bench, &server, *contender, processes, figures).await?;
            }
            if let Ok(machines) = &mut machines {
                live.push(live_burst(machines, 1).await?);
            }
        }
        let machines = machines.map(|_| live);
        show(bench, processes, &contenders, &figures);
        bench.report.note(&match &machines {
            Ok(rates) => format!(
                "    {:<22} {:>9}",
                "Redisson 4.7.0",
                Rate(median(rates)).to_string()
            ),
            Err(error) => format!("    REDISSON ITSELF WAS NOT MEASURED: {error:#}"),
        });
        judge(bench, processes, &figures, &machines);
    }
    peers(bench, &server).await
}

/// One repetition of everything.
pub(super) async fn measure(
    bench: &Bench,
    server: &Server,
    contender: Contender,
    processes: usize,
    figures: &mut Figures,
) -> Result<()> {
    let mut crowd = Crowd::start(contender, server.url(), processes).await?;
    bursts(bench, server, &mut crowd, figures).await?;
    closed(bench, server, &mut crowd, figures).await
}

/// All tasks start at once, and each enters once.
async fn bursts(
    bench: &Bench,
    server: &Server,
    crowd: &mut Crowd,
    figures: &mut Figures,
) -> Result<()> {
    let load = Load::on(KEY, WAITERS, Until::Rounds(1));
    crowd.run(&load).await?;
    let before = server.scripts().await?;
    let (mut rates, mut waits, mut sections) = (Vec::new(), Latencies::new(), 0);
    // A burst lasts less than a slice of the scheduler.
    for _ in 0..bench.repetitions(100) {
        let turnout = crowd.run(&load).await?;
        rates.push(turnout.rate());
        sections += turnout.sections();
        waits.merge(&turnout.waits);
    }
    let scripts = server.scripts().await? - before;
    figures.burst.push(median(&rates));
    figures.burst_scripts.push(scripts as f64 / sections as f64);
    figures.burst_worst.push(waits.worst().as_secs_f64());
    Ok(())
}

/// Each task asks for the lock again at once, for a second.
async fn closed(
    bench: &Bench,
    server: &Server,
    crowd: &mut Crowd,
    figures: &mut Figures,
) -> Result<()> {
    let time = Duration::from_millis(if bench.quick { 500 } else { 1_000 });
    let before = server.scripts().await?;
    let turnout = crowd
        .run(&Load::on(KEY, WAITERS, Until::After(time)))
        .await?;
    let scripts = server.scripts().await? - before;
    figures.closed.push(turnout.rate());
    figures
        .scripts
        .push(scripts as f64 / turnout.sections() as f64);
    figures.jain.push(jain(&turnout.shares));
    figures.smallest.push(smallest_share(&turnout.shares));
    figures.worst.push(turnout.waits.worst().as_secs_f64());
    Ok(())
}

async fn lives(bench: &Bench, server: &Server, processes: usize) -> Result<Vec<Live>> {
    bench.report.progress("starting Redisson");
    let mut machines = try_join_all((0..processes).map(|_| Live::start(server.url()))).await?;
    // A first burst, for the JIT compiler.
    live_burst(&mut machines, if bench.quick { 5 } else { 20 }).await?;
    Ok(machines)
}

async fn live_burst(machines: &mut [Live], rounds: usize) -> Result<f64> {
    let bursts = machines
        .iter_mut()
        .map(|live| live.burst("reentrant", "hot-java", WAITERS, rounds));
    let bursts = try_join_all(bursts).await?;
    let sections: u64 = bursts.iter().map(|burst| burst.sections).sum();
    let elapsed = bursts
        .iter()
        .map(|burst| burst.elapsed)
        .max()
        .unwrap_or_default();
    Ok(sections as f64 / elapsed.as_secs_f64())
}

pub(super) fn show(bench: &Bench, processes: usize, contenders: &[Contender], figures: &[Figures]) {
    bench.report.note(&format!(
        "  {processes} × {WAITERS}: burst CS/s (scripts a CS, worst wait); closed loop CS/s (scripts, worst; smallest share, Jain)"
    ));
    let time = |seconds: &[f64]| Time(Duration::from_secs_f64(median(seconds)));
    for (contender, figures) in contenders.iter().zip(figures) {
        bench.report.note(&format!(
            "    {:<22} {:>9} ({:.2}, {}); {:>9} ({:.2}, {}; {:.2}, {:.3})",
            contender.name(),
            Rate(median(&figures.burst)).to_string(),
            median(&figures.burst_scripts),
            time(&figures.burst_worst),
            Rate(median(&figures.closed)).to_string(),
            median(&figures.scripts),
            time(&figures.worst),
            median(&figures.smallest),
            median(&figures.jain),
        ));
    }
}

fn judge(bench: &mut Bench, processes: usize, figures: &[Figures], live: &Result<Vec<f64>>) {
    let [confirmed, unconfirmed, _, redisson] = figures else {
        return;
    };
    let target = AtLeast(10.0);
    let who = format!("hot key, {processes} × {WAITERS}");
    let beside = |ours: &[f64], theirs: &[f64]| {
        format!("{} against {}", Rate(median(ours)), Rate(median(theirs)))
    };
    for (name, pick) in [
        ("burst", (|f| &f.burst) as fn(&Figures) -> &Vec<f64>),
        ("closed loop", |f| &f.closed),
    ] {
        let theirs = pick(redisson);
        for (ending, figures) in [("", confirmed), (", unconfirmed", unconfirmed)] {
            let ours = pick(figures);
            let what = format!("{who}, {name}{ending} / Redisson's algorithm");
            bench
                .report
                .row(&what, target, ratio(ours, theirs), beside(ours, theirs));
        }
    }
    let what = format!("{who}, burst / Redisson 4.7.0");
    match live {
        Ok(theirs) => {
            let ours = &confirmed.burst;
            bench
                .report
                .row(&what, target, ratio(ours, theirs), beside(ours, theirs));
        }
        Err(error) => bench.report.missing(&what, target, &format!("{error:#}")),
    }
    for (ending, most, figures) in [
        ("unconfirmed", 0.25, unconfirmed),
        ("confirmed", 0.25, confirmed),
    ] {
        let what = format!("{who}, scripts a section, {ending}");
        let beside = format!("in a burst {:.2}", median(&figures.burst_scripts));
        bench
            .report
            .row(&what, AtMost(most), median(&figures.scripts), beside);
    }
    if processes > 1 {
        let beside = format!("unconfirmed {:.2}", median(&unconfirmed.smallest));
        bench.report.row(
            &format!("{who}, smallest share of a process"),
            AtLeast(0.5),
            median(&confirmed.smallest),
            beside,
        );
        let beside = format!("unconfirmed {:.3}", median(&unconfirmed.jain));
        bench.report.row(
            &format!("{who}, Jain's index"),
            AtLeast(0.99),
            median(&confirmed.jain),
            beside,
        );
    }
}

/// The other crates, in one burst, which takes long enough.
async fn peers(bench: &mut Bench, server: &Server) -> Result<()> {
    let load = Load::on(KEY, WAITERS, Until::Rounds(1));
    let contenders = [
        Contender::Confirmed,
        Contender::Rslock,
        Contender::Rlock,
        Contender::AsyncRedisLock,
    ];
    let mut rates = vec![Vec::new(); contenders.len()];
    for repetition in 0..bench.repetitions(3) {
        for (contender, rates) in contenders.iter().zip(&mut rates) {
            // Repeated bursts of a crate that polls every 100 ms give the same result.
            if repetition > 0 && matches!(contender, Contender::Rlock | Contender::AsyncRedisLock) {
                continue;
            }
            bench
                .report
                .progress(&format!("a burst on one key: {}", contender.name()));
            let mut crowd = Crowd::start(*contender, server.url(), 1).await?;
            crowd.run(&Load::apart(1, Until::Rounds(10))).await?;
            let turnout = crowd.run(&load).await?;
            bench.report.note(&format!(
                "    a burst of {WAITERS}: {:<18} {}, waits {}",
                contender.name(),
                Rate(turnout.rate()),
                turnout.waits
            ));
            rates.push(turnout.rate());
        }
    }
    let beside = format!(
        "{} against {}",
        Rate(median(&rates[0])),
        Rate(median(&rates[1]))
    );
    let what = format!("hot key, burst of {WAITERS} / rslock");
    bench
        .report
        .row(&what, AtLeast(200.0), ratio(&rates[0], &rates[1]), beside);
    Ok(())
}
