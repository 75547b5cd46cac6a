//! One key that processes of ours and of Redisson 4.7.0 want: the shares of both, and the worst waits; beside as many processes
//! of Redisson alone.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;

use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
use crate::redisson::{Live, Outcome};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, median};
use crate::server::Server;

const KEY: &str = "mixed";

/// The tasks or threads of a process.
const EACH: usize = 8;

/// Processes of each side.
const SIZES: [usize; 2] = [1, 2];

const MODES: [(Contender, &str); 2] = [
    (Contender::Confirmed, "reentrant"),
    (Contender::Write, "write"),
];

pub(super) const WORK: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

/// A figure of each repetition.
#[derive(Default)]
pub(super) struct Figures {
    /// The part of all sections, or of all writes, that were ours.
    pub(super) ours: Vec<f64>,
    /// Sections of both sides per second.
    rates: Vec<f64>,
    /// The worst wait of each side, in milliseconds.
    pub(super) our_waits: Vec<f64>,
    pub(super) their_waits: Vec<f64>,
    /// Without ours, and with as many more of theirs.
    pub(super) alone: Vec<f64>,
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    for processes in SIZES {
        bench.report.progress("starting Redisson");
        let mut theirs = match start(&server, 2 * processes).await {
            Ok(theirs) => theirs,
            Err(error) => {
                let what = format!("mixed crowd, {processes} + {processes} processes");
                let why = format!("{error:#}");
                bench.report.missing(&what, AtLeast(0.25), &why);
                continue;
            }
        };
        for (contender, kind) in MODES {
            let mut ours = Crowd::start(contender, server.url(), processes).await?;
            for work in WORK {
                bench.report.progress(&format!(
                    "mixed crowd, {processes} + {processes} processes, {kind}, {work:?} of work"
                ));
                let mut figures = Figures::default();
                for _ in 0..bench.repetitions(3) {
                    let half = &mut theirs[..processes];
                    measure(bench, &mut ours, half, kind, work, &mut figures).await?;
                    let alone = closed_loops(bench, &mut theirs, kind, work).await?;
                    figures.alone.push(worst(&alone));
                }
                judge(bench, processes, kind, work, &figures);
            }
        }
    }
    Ok(())
}

pub(super) async fn start(server: &Server, processes: usize) -> Result<Vec<Live>> {
    let mut lives = try_join_all((0..processes).map(|_| Live::start(server.url()))).await?;
    // First sections, for the JIT compiler.
    let bursts = lives
        .iter_mut()
        .map(|live| live.burst("reentrant", "mixed-first", EACH, 100));
    try_join_all(bursts).await?;
    Ok(lives)
}

async fn measure(
    bench: &Bench,
    ours: &mut Crowd,
    theirs: &mut [Live],
    kind: &str,
    work: Duration,
    figures: &mut Figures,
) -> Result<()> {
    let load = Load::on(KEY, EACH, Until::After(time(bench))).holding(work);
    let (turnout, outcomes) =
        tokio::try_join!(ours.run(&load), closed_loops(bench, theirs, kind, work))?;
    let (ours, theirs) = (
        turnout.sections(),
        outcomes.iter().map(|outcome| outcome.sections).sum::<u64>(),
    );
    let all = (ours + theirs) as f64;
    figures.ours.push(ours as f64 / all);
    figures.rates.push(all / time(bench).as_secs_f64());
    figures.our_waits.push(millis(turnout.waits.worst()));
    figures.their_waits.push(worst(&outcomes));
    Ok(())
}

async fn closed_loops(
    bench: &Bench,
    theirs: &mut [Live],
    kind: &str,
    work: Duration,
) -> Result<Vec<Outcome>> {
    let loops = theirs.iter_mut();
    let loops = loops.map(|live| live.closed_loop(kind, KEY, EACH, time(bench), work));
    try_join_all(loops).await
}

pub(super) fn time(bench: &Bench) -> Duration {
    Duration::from_millis(if bench.quick { 1_000 } else { 3_000 })
}

/// The worst wait of all, in milliseconds.
pub(super) fn worst(outcomes: &[Outcome]) -> f64 {
    let worst = outcomes.iter().map(|outcome| outcome.worst_wait).max();
    millis(worst.unwrap_or_default())
}

fn judge(bench: &mut Bench, processes: usize, kind: &str, work: Duration, figures: &Figures) {
    let who = format!("mixed crowd, {processes} + {processes} processes, {kind}, {work:?} of work");
    let ours = median(&figures.ours);
    let rate = Rate(median(&figures.rates));
    bench.report.row(
        &format!("{who}: smaller share of ours and Redisson's"),
        AtLeast(0.25),
        ours.min(1.0 - ours),
        format!("ours {ours:.2} of {rate}"),
    );
    let theirs = judge_waits(bench, &who, figures);
    let alone = median(&figures.alone);
    bench.report.fact(
        &format!("{who}: Redisson's worst wait / without ours"),
        theirs / alone,
        format!("{theirs:.0} ms against {alone:.0} ms"),
    );
}

/// Judges the worst wait of both sides. Returns Redisson's.
fn judge_waits(bench: &mut Bench, who: &str, figures: &Figures) -> f64 {
    let (ours, theirs) = (median(&figures.our_waits), median(&figures.their_waits));
    bench.report.row(
        &format!("{who}: worst wait, ms"),
        AtMost(500.0),
        ours.max(theirs),
        format!("ours {ours:.0} ms, Redisson's {theirs:.0} ms"),
    );
    theirs
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
