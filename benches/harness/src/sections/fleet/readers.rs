//! Readers that wait for a writer, each in a client of its own: what its release costs, and that it wakes each once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use super::{Counts, KEY, TIME, Turnout, loads};
use crate::Bench;
use crate::contender::Contender;
use crate::load::Until;
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, jain, median};
use crate::server::Server;

const SIZES: [usize; 2] = [2, 128];

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let [two, most] = SIZES;
    bench.report.progress("readers that a writer lets in");
    let few = releases(bench, two).await?;
    let many = releases(bench, most).await?;
    let what = |what: &str| format!("{most} readers that wait for a writer: {what}");
    let last = Time(Duration::from_secs_f64(median(&many.last)));
    for (name, target, few, many) in [
        (
            "questions of a reader after the release",
            1.0,
            &few.questions,
            &many.questions,
        ),
        (
            "messages of the release",
            2.0,
            &few.messages,
            &many.messages,
        ),
    ] {
        bench.report.row(
            &what(name),
            AtMost(target),
            median(many),
            format!(
                "with {two} readers {:.2}; all have entered after {last}",
                median(few)
            ),
        );
    }
    loops(bench, most).await
}

/// A figure of each release.
#[derive(Default)]
struct Releases {
    /// Of one reader.
    questions: Vec<f64>,
    messages: Vec<f64>,
    /// From the begin of the release until the last reader has entered, in seconds.
    last: Vec<f64>,
}

/// A writer holds until all readers wait. Then it releases, and they stay until all have entered.
async fn releases(bench: &Bench, readers: usize) -> Result<Releases> {
    let server = Server::start().await?;
    let connect = || RedisStore::connect(server.url());
    let writer = LockClient::new(connect().await?);
    let stores = try_join_all((0..readers).map(|_| connect())).await?;
    let clients: Vec<_> = stores.into_iter().map(LockClient::new).collect();
    let mut figures = Releases::default();
    for round in 0..=bench.repetitions(9) {
        let guard = writer.lock(KEY).mode(LockMode::Write).await?;
        let mut waiting = JoinSet::new();
        for client in &clients {
            let request = client.lock(KEY).mode(LockMode::Read);
            let request = request.wait(Duration::from_secs(60));
            waiting.spawn(async move {
                let guard = request.acquire().await?;
                anyhow::Ok((guard, Instant::now()))
            });
        }
        let counts = rest(&server).await?;
        let began = Instant::now();
        guard.release().await?;
        let mut entered = Vec::new();
        while let Some(done) = waiting.join_next().await {
            entered.push(done??);
        }
        let counts = counts.since(&server).await?;
        let last = entered.iter().map(|(_, at)| *at).max().unwrap_or(began);
        for (guard, _) in entered {
            guard.release().await?;
        }
        // In the first round they subscribe, and load their scripts.
        if round > 0 {
            // One is the release.
            let questions = counts.scripts.saturating_sub(1) as f64;
            figures.questions.push(questions / readers as f64);
            figures.messages.push(counts.messages as f64);
            figures.last.push((last - began).as_secs_f64());
        }
    }
    Ok(figures)
}

/// Waits until no script has been called for a while: then all readers wait. Each asks again after a second.
async fn rest(server: &Server) -> Result<Counts> {
    let mut before = Counts::of(server).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = Counts::of(server).await?;
        if now.scripts == before.scripts {
            return Ok(now);
        }
        before = now;
    }
}

/// All read again and again, and one more client writes again and again.
async fn loops(bench: &mut Bench, readers: usize) -> Result<()> {
    let time = bench.time(TIME);
    let [mut scripts, mut messages, mut fairness] = [const { Vec::new() }; 3];
    let mut beside = String::new();
    for repetition in 0..bench.repetitions(3) {
        bench.report.progress(&format!(
            "{readers} readers and a writer, repetition {}",
            repetition + 1
        ));
        let server = Server::start().await?;
        let connect = |contender: Contender| contender.connect(server.url());
        let reading = try_join_all((0..readers).map(|_| connect(Contender::Read))).await?;
        let reading: Vec<_> = reading.into_iter().map(Arc::new).collect();
        let writing = [Arc::new(connect(Contender::Write).await?)];
        let all = async |until| tokio::try_join!(loads(&reading, until), loads(&writing, until));
        all(Until::Rounds(2)).await?;
        let counts = Counts::of(&server).await?;
        let (reads, writes) = all(Until::After(time)).await?;
        let counts = counts.since(&server).await?;
        let sections = |turnout: &Turnout| turnout.shares.iter().sum::<u64>() as f64;
        let both = sections(&reads) + sections(&writes);
        scripts.push(counts.scripts as f64 / both);
        messages.push(counts.messages as f64 / both);
        fairness.push(jain(&reads.shares));
        let rate = |turnout| Rate(sections(turnout) / time.as_secs_f64());
        beside = format!("{} reads, {} writes", rate(&reads), rate(&writes));
    }
    let what = |what: &str| format!("{readers} readers and a writer in loops: {what}");
    for (name, target, figures) in [
        ("scripts a section", AtMost(4.0), &scripts),
        ("messages a section", AtMost(2.0), &messages),
        ("Jain's index of the readers", AtLeast(0.99), &fairness),
    ] {
        let beside = beside.clone();
        bench
            .report
            .row(&what(name), target, median(figures), beside);
    }
    Ok(())
}
