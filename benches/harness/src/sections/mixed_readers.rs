//! One read-write lock that readers and writers of ours and of Redisson 4.7.0 want: the shares of both, and the worst waits; beside
//! as many more readers and writers of Redisson in the place of ours.
//!
//! Readers of Redisson come in beside each other, whatever waits. With work, four of them hardly leave a moment in which a writer could
//! start, so a bound in milliseconds would be one on their timing. What ours owe is that no client waits longer than with Redisson in our
//! place.

use anyhow::Result;

use super::mixed::{Figures, WORK, millis, start, time, worst};
use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::median;
use crate::server::Server;

const KEY: &str = "mixed-readers";

/// The tasks or threads of each side that write, and those that read.
const WRITERS: usize = 2;
const READERS: usize = 4;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    const WHO: &str = "mixed crowd of readers and writers";
    let server = Server::start().await?;
    bench.report.progress("starting Redisson");
    let mut theirs = match start(&server, 2).await {
        Ok(theirs) => theirs,
        Err(error) => {
            let why = format!("{error:#}");
            bench.report.missing(WHO, AtLeast(0.25), &why);
            return Ok(());
        }
    };
    let (writing, reading) = theirs.split_at_mut(1);
    let mut writers = Crowd::start(Contender::Write, server.url(), 1).await?;
    let mut readers = Crowd::start(Contender::Read, server.url(), 1).await?;
    for work in WORK {
        let who = format!("{WHO}, {work:?} of work");
        bench.report.progress(&who);
        let time = time(bench);
        let (mut figures, mut reads) = (Figures::default(), Vec::new());
        for _ in 0..bench.repetitions(3) {
            let load = |tasks| Load::on(KEY, tasks, Until::After(time)).holding(work);
            let (write, read) = (load(WRITERS), load(READERS));
            let (ours, our_reads, theirs, their_reads) = tokio::try_join!(
                writers.run(&write),
                readers.run(&read),
                writing[0].closed_loop("write", KEY, WRITERS, time, work),
                reading[0].closed_loop("read", KEY, READERS, time, work),
            )?;
            let share = |ours: u64, theirs: u64| ours as f64 / (ours + theirs).max(1) as f64;
            figures.ours.push(share(ours.sections(), theirs.sections));
            reads.push(share(our_reads.sections(), their_reads.sections));
            let worst_of_ours = ours.waits.worst().max(our_reads.waits.worst());
            figures.our_waits.push(millis(worst_of_ours));
            figures.their_waits.push(worst(&[theirs, their_reads]));
            let (writes, their_reads) = tokio::try_join!(
                writing[0].closed_loop("write", KEY, 2 * WRITERS, time, work),
                reading[0].closed_loop("read", KEY, 2 * READERS, time, work),
            )?;
            figures.alone.push(worst(&[writes, their_reads]));
        }
        for (what, ours) in [("writes", &figures.ours), ("reads", &reads)] {
            let ours = median(ours);
            bench.report.row(
                &format!("{who}: smaller share of the {what}"),
                AtLeast(0.25),
                ours.min(1.0 - ours),
                format!("ours {ours:.2} of the {what}"),
            );
        }
        let waits = [&figures.our_waits, &figures.their_waits, &figures.alone];
        let [ours, theirs, alone] = waits.map(|waits| median(waits));
        for (whose, wait) in [("our", ours), ("Redisson's", theirs)] {
            let what = format!("{who}: {whose} worst wait");
            let wait_ms = format!("{wait:.0} ms");
            bench
                .report
                .row(&format!("{what}, ms"), AtMost(500.0), wait, wait_ms);
            bench.report.row(
                &format!("{what} / Redisson's with Redisson in our place"),
                AtMost(1.0),
                wait / alone,
                format!("{wait:.0} ms against {alone:.0} ms"),
            );
        }
    }
    Ok(())
}
