//! One key, with work done under its lock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, median, ratio};
use crate::server::Server;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    processes(bench, &server).await?;
    tasks(bench, &server).await
}

/// 2 ms of work in four processes, and the same number of tasks on a lock in memory.
async fn processes(bench: &mut Bench, server: &Server) -> Result<()> {
    let time = Until::After(Duration::from_millis(if bench.quick { 500 } else { 1_500 }));
    let work = Duration::from_millis(2);
    let contenders = [
        Contender::Memory,
        Contender::Confirmed,
        Contender::Unconfirmed,
        Contender::Alone,
        Contender::Redisson,
        Contender::Rslock,
    ];
    let mut rates = vec![Vec::new(); contenders.len()];
    let mut stays = vec![Vec::new(); contenders.len()];
    let mut gaps = vec![Vec::new(); contenders.len()];
    for repetition in 0..bench.repetitions(3) {
        for (index, contender) in contenders.iter().enumerate() {
            // A lock in memory covers one process only.
            let processes = if *contender == Contender::Memory {
                1
            } else {
                4
            };
            bench.report.progress(&format!(
                "2 ms of work, repetition {}: {}",
                repetition + 1,
                contender.name()
            ));
            let mut crowd = Crowd::start(*contender, server.url(), processes).await?;
            let load = Load::on("work", 32 / processes, time).holding(work);
            let turnout = crowd.run(&load).await?;
            let sections = turnout.sections() as f64;
            let gap = turnout.elapsed.saturating_sub(turnout.held);
            rates[index].push(turnout.rate());
            stays[index].push(turnout.held.as_secs_f64() / sections);
            gaps[index].push(gap.as_secs_f64() / sections);
        }
    }
    let time = |seconds: &[f64]| Time(Duration::from_secs_f64(median(seconds)));
    let in_memory = rates[0].clone();
    for (index, contender) in contenders.iter().enumerate() {
        bench.report.note(&format!(
            "    {:<22} {} ({:.3} of the memory store), held {}, then {} until the next",
            contender.name(),
            Rate(median(&rates[index])),
            ratio(&rates[index], &in_memory),
            time(&stays[index]),
            time(&gaps[index])
        ));
    }
    // The rate of sections of exactly this work, with these gaps. A timer makes the work longer, on each side as it happens.
    let exact = |gaps: &[f64]| -> Vec<f64> {
        let section = |gap: &f64| 1.0 / (work.as_secs_f64() + gap);
        gaps.iter().map(section).collect()
    };
    let beside = |index: usize| {
        format!(
            "between two sections {} against {}; the timer held them {} and {}; with it {:.2}",
            time(&gaps[index]),
            time(&gaps[0]),
            time(&stays[index]),
            time(&stays[0]),
            ratio(&rates[index], &in_memory)
        )
    };
    let measured = |index: usize| ratio(&exact(&gaps[index]), &exact(&gaps[0]));
    bench.report.row(
        "hot key, 2 ms of work, 4 processes / memory store",
        AtLeast(0.97),
        measured(1),
        beside(1),
    );
    bench.report.fact(
        "hot key, 2 ms of work, 4 processes, unconfirmed / memory store",
        measured(2),
        beside(2),
    );
    Ok(())
}

/// 32 tasks of one process, ten sections of 1 ms each.
async fn tasks(bench: &mut Bench, server: &Server) -> Result<()> {
    const TASKS: usize = 32;
    let load = Load::on("tasks", TASKS, Until::Rounds(10)).holding(Duration::from_millis(1));
    let contenders = [
        Contender::Confirmed,
        Contender::Redisson,
        Contender::Rslock,
        Contender::Rlock,
        Contender::AsyncRedisLock,
    ];
    let (mut walls, mut worsts, mut seen) = (Vec::new(), Vec::new(), String::new());
    for repetition in 0..bench.repetitions(3) {
        for contender in contenders {
            if contender != Contender::Confirmed && repetition > 0 {
                continue;
            }
            bench
                .report
                .progress(&format!("{TASKS} tasks × 10, 1 ms: {}", contender.name()));
            let locks = Arc::new(contender.connect(server.url()).await?);
            let outcome = load.run_now(&locks).await?;
            bench.report.note(&format!(
                "    {TASKS} × 10 × 1 ms: {:<18} {} (the sections alone {}), waits {}",
                contender.name(),
                Time(outcome.elapsed),
                Time(outcome.held),
                outcome.waits
            ));
            if contender == Contender::Confirmed {
                let hold = outcome.held.as_secs_f64() / outcome.sections as f64;
                walls.push(outcome.elapsed.as_secs_f64() / outcome.held.as_secs_f64());
                worsts.push(outcome.waits.worst().as_secs_f64() / (hold * (TASKS - 1) as f64));
                seen = format!(
                    "{}, worst wait {}",
                    Time(outcome.elapsed),
                    Time(outcome.waits.worst())
                );
            }
        }
    }
    bench.report.row(
        "32 tasks × 10, 1 ms hold: wall / the sections alone",
        AtMost(1.15),
        median(&walls),
        seen.clone(),
    );
    bench.report.row(
        "32 tasks × 10, 1 ms hold: worst wait / 31 sections",
        AtMost(1.3),
        median(&worsts),
        seen,
    );
    Ok(())
}
