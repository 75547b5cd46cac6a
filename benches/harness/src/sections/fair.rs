//! The fair queue: grants in the order of the requests.

use anyhow::Result;

use super::handoff;
use crate::Bench;
use crate::contender::Contender;
use crate::crowd::Crowd;
use crate::load::{Load, Until};
use crate::redisson::Live;
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, median, ratio};
use crate::server::Server;

const WAITERS: usize = 64;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    bench.report.progress("fair mode: starting Redisson");
    let mut live = Live::start(server.url()).await;
    if let Ok(live) = &mut live {
        // A first burst, for the JIT compiler.
        live.burst(
            "fair",
            "fair-java",
            WAITERS,
            if bench.quick { 5 } else { 30 },
        )
        .await?;
    }
    let mut crowd = Crowd::start(Contender::Fair, server.url(), 1).await?;
    let load = Load::on("fair", WAITERS, Until::Rounds(1));
    crowd.run(&load).await?;
    let (mut ours, mut theirs, mut scripts, mut waits) = (vec![], vec![], vec![], vec![]);
    for repetition in 0..bench.repetitions(15) {
        bench
            .report
            .progress(&format!("fair mode, burst {}", repetition + 1));
        let before = server.scripts().await?;
        let turnout = crowd.run(&load).await?;
        scripts.push((server.scripts().await? - before) as f64 / turnout.sections() as f64);
        ours.push(turnout.rate());
        waits.push(turnout.waits.worst().as_secs_f64());
        if let Ok(live) = &mut live {
            let burst = live.burst("fair", "fair-java", WAITERS, 1).await?;
            theirs.push(burst.sections as f64 / burst.elapsed.as_secs_f64());
        }
    }
    let what = "fair mode, burst of 64 / Redisson 4.7.0";
    let rate = median(&ours);
    match live {
        Ok(_) => {
            let beside = format!("{} against {}", Rate(rate), Rate(median(&theirs)));
            bench
                .report
                .row(what, AtLeast(2.0), ratio(&ours, &theirs), beside);
        }
        Err(error) => {
            bench
                .report
                .missing(what, AtLeast(2.0), &format!("{}; {error:#}", Rate(rate)))
        }
    }
    let worst = Time(std::time::Duration::from_secs_f64(median(&waits)));
    bench.report.row(
        "fair mode, scripts a section",
        AtMost(3.0),
        median(&scripts),
        format!("worst wait {worst}"),
    );
    let what = "fair mode, hand-off to another client";
    handoff::judge(bench, &server, Contender::Fair, what, 2.1).await
}
