//! Pairs of acquire and release without contention.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;
use tower_distributed_lock::LockMode;

use crate::Bench;
use crate::contender::{Contender, Locks};
use crate::cores::Apart;
use crate::load::{Load, Until};
use crate::recipe::Recipe;
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Latencies, Rate, Time, median, ratio, spread};
use crate::server::Server;
use crate::wire::{self, Handle};

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let recipe = Recipe::learn(&server, LockMode::Reentrant).await?;
    let commands = recipe.len();
    bench.report.row(
        "commands a pair, uncontended",
        AtMost(2.0),
        commands as f64,
        "as MONITOR shows them".into(),
    );
    many(bench, &server, &recipe).await?;
    on_cores_apart(bench, &server, &recipe).await?;
    one(bench, &server, &recipe).await?;
    allocations(bench, &server).await
}

/// The connections for commands of a store with its defaults.
const CONNECTIONS: usize = 2;

/// Contenders with distinct keys, and the limits.
async fn many(bench: &mut Bench, server: &Server, recipe: &Recipe) -> Result<()> {
    let contenders = [
        Contender::Confirmed,
        Contender::Unconfirmed,
        Contender::Redisson,
        Contender::Rslock,
        Contender::Rlock,
        Contender::AsyncRedisLock,
    ];
    let mut locks = Vec::new();
    for contender in contenders {
        locks.push(Arc::new(contender.connect(server.url()).await?));
    }
    let handles = handles(server, recipe).await?;
    for tasks in [1, 8, 64] {
        bench
            .report
            .progress(&format!("uncontended pairs of {tasks} tasks"));
        let pairs = if tasks == 1 { 1_000 } else { 10_000 };
        let (mut pipelined, mut blocking, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        let mut ours = vec![Vec::new(); contenders.len()];
        for repetition in 0..=bench.repetitions(9) {
            // The first repetition is a warm-up.
            let (a, b) = tokio::task::block_in_place(|| {
                anyhow::Ok((
                    wire::pipelined(server, recipe, tasks, pairs)?,
                    wire::blocking(server, recipe, tasks, pairs)?,
                ))
            })?;
            let handled = Handle::rate(&handles, tasks, pairs).await?;
            let load = Load::apart(tasks, Until::Rounds(pairs / tasks));
            let mut rates = Vec::new();
            for locks in &locks {
                rates.push(load.run_now(locks).await?.rate());
            }
            if repetition > 0 {
                pipelined.push(a);
                blocking.push(b);
                bare.push(handled);
                rates
                    .into_iter()
                    .zip(&mut ours)
                    .for_each(|(rate, rates)| rates.push(rate));
            }
        }
        let limit = median(&pipelined);
        let per_limit =
            |rates: &[f64]| format!("{} ({:.2})", Rate(median(rates)), ratio(rates, &pipelined));
        bench.report.note(&format!(
            "  {tasks} tasks, pairs/s and ratio to one hand-pipelined socket: {} (1), blocking sockets {}, bare handles {}",
            Rate(limit),
            per_limit(&blocking),
            per_limit(&bare)
        ));
        for (contender, rates) in contenders.iter().zip(&ours) {
            bench.report.note(&format!(
                "    {:<22} {}",
                contender.name(),
                per_limit(rates)
            ));
        }
        if tasks == 64 {
            let beside = format!(
                "{}; limit {}; rslock {}",
                Rate(median(&ours[0])),
                Rate(limit),
                Rate(median(&ours[3]))
            );
            bench.report.row(
                "uncontended pairs, 64 tasks / hand-pipelined socket",
                AtLeast(0.9),
                ratio(&ours[0], &pipelined),
                beside,
            );
            bench.report.fact(
                "uncontended pairs, 64 tasks / the same commands on bare handles",
                ratio(&ours[0], &bare),
                format!("{} against {}", Rate(median(&ours[0])), Rate(median(&bare))),
            );
            bench.report.fact(
                "the same commands on bare handles, 64 tasks / hand-pipelined socket",
                ratio(&bare, &pipelined),
                "the limit of a client that shares connections".into(),
            );
            let ratios = ours[0].iter().zip(&ours[3]);
            let ratios: Vec<_> = ratios.map(|(ours, rslock)| ours / rslock).collect();
            let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = ratios.iter().copied().fold(0.0, f64::max);
            let rslock = Rate(median(&ours[3]));
            bench.report.row(
                "uncontended pairs, 64 tasks / rslock",
                AtLeast(1.0),
                median(&ratios),
                format!("{} against {rslock}", Rate(median(&ours[0]))),
            );
            bench.report.row(
                "uncontended pairs, 64 tasks / rslock, in the worst repetition",
                AtLeast(1.0),
                lowest,
                format!(
                    "{lowest:.2} to {highest:.2} in {} repetitions of 10,000 pairs",
                    ratios.len()
                ),
            );
        }
    }
    Ok(())
}

async fn handles(server: &Server, recipe: &Recipe) -> Result<Vec<Handle>> {
    let mut handles = Vec::new();
    for _ in 0..CONNECTIONS {
        handles.push(Handle::connect(server, recipe, 64).await?);
    }
    Ok(handles)
}

/// 64 tasks, with the server on a core of its own. Otherwise the threads of the client take its core from it.
async fn on_cores_apart(bench: &mut Bench, server: &Server, recipe: &Recipe) -> Result<()> {
    const PAIRS: usize = 10_000;
    let Some(_apart) = Apart::begin(server) else {
        let note = "  one core, or no `taskset`: no pairs with the server on a core of its own";
        bench.report.note(note);
        return Ok(());
    };
    bench
        .report
        .progress("uncontended pairs, a core for the server");
    let ours = Arc::new(Contender::Confirmed.connect(server.url()).await?);
    let rslock = Arc::new(Contender::Rslock.connect(server.url()).await?);
    let handles = handles(server, recipe).await?;
    let load = Load::apart(64, Until::Rounds(PAIRS / 64));
    let mut rates = [const { Vec::new() }; 4];
    for repetition in 0..=bench.repetitions(9) {
        let measured = [
            load.run_now(&ours).await?.rate(),
            tokio::task::block_in_place(|| wire::pipelined(server, recipe, 64, PAIRS))?,
            Handle::rate(&handles, 64, PAIRS).await?,
            load.run_now(&rslock).await?.rate(),
        ];
        // The first repetition is a warm-up.
        if repetition > 0 {
            let rates = rates.iter_mut().zip(measured);
            rates.for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let [ours, rest @ ..] = &rates;
    let beside = [
        "hand-pipelined socket",
        "the same commands on bare handles",
        "rslock",
    ];
    for (name, theirs) in beside.into_iter().zip(rest) {
        let rate = |rates: &[f64]| Rate(median(rates));
        bench.report.fact(
            &format!("uncontended pairs, 64 tasks, a core for the server / {name}"),
            ratio(ours, theirs),
            format!(
                "{} against {}; {}",
                rate(ours),
                rate(theirs),
                spread(ours, theirs)
            ),
        );
    }
    Ok(())
}

/// The latency of a pair in one task, and the time of its two commands alone.
async fn one(bench: &mut Bench, server: &Server, recipe: &Recipe) -> Result<()> {
    bench.report.progress("latency of a pair");
    let contenders = [
        Contender::Confirmed,
        Contender::Rslock,
        Contender::Rlock,
        Contender::AsyncRedisLock,
    ];
    let mut locks = Vec::new();
    for contender in contenders {
        locks.push(Arc::new(contender.connect(server.url()).await?));
    }
    let handle = Handle::connect(server, recipe, 1).await?;
    let apart = Apart::begin(server);
    let (mut bare, mut pings, mut blocking) = (Vec::new(), Vec::new(), Vec::new());
    let mut pairs = vec![Vec::new(); contenders.len()];
    for repetition in 0..=bench.repetitions(30) {
        let ping = wire::pings(server, 100, Duration::ZERO).await?.median();
        let block = tokio::task::block_in_place(|| wire::blocking_pings(server, 100))?.median();
        // Measured side by side, so that the load of the machine affects both.
        let commands = handle.latencies(100).await?.median();
        let mut took = Vec::new();
        for locks in &locks {
            took.push(tokio::spawn(pair_latency(locks.clone(), 100)).await??);
        }
        // The first is for warming up.
        if repetition > 0 {
            pings.push(ping.as_secs_f64());
            blocking.push(block.as_secs_f64());
            bare.push(commands.as_secs_f64());
            for (pairs, took) in pairs.iter_mut().zip(&took) {
                pairs.push(took.median().as_secs_f64());
            }
        }
    }
    let time = |values: &[f64]| Time(Duration::from_secs_f64(median(values)));
    bench.report.note(&format!(
        "  one task: its two commands {}, a PING {} (on a blocking socket {}); a pair: {}",
        time(&bare),
        time(&pings),
        time(&blocking),
        contenders
            .iter()
            .zip(&pairs)
            .map(|(contender, pairs)| format!("{} {}", contender.name(), time(pairs)))
            .collect::<Vec<_>>()
            .join(", ")
    ));
    bench.report.fact(
        "uncontended pair, one task / its two commands on a bare handle",
        ratio(&pairs[0], &bare),
        format!(
            "{} against {}; rslock {}; {}, {}",
            time(&pairs[0]),
            time(&bare),
            time(&pairs[1]),
            spread(&pairs[0], &bare),
            Apart::note(apart.as_ref())
        ),
    );
    bench.report.fact(
        "uncontended pair, one task / two PINGs on a socket of the task's own",
        ratio(&pairs[0], &pings) / 2.0,
        format!("{} against {}", time(&pairs[0]), time(&pings)),
    );
    Ok(())
}

async fn pair_latency(locks: Arc<Locks>, pairs: usize) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    for _ in 0..pairs {
        let asked = std::time::Instant::now();
        locks.section("one", Duration::ZERO).await?;
        latencies.record(asked.elapsed());
    }
    Ok(latencies)
}

async fn allocations(bench: &mut Bench, server: &Server) -> Result<()> {
    bench.report.progress("allocations of a pair");
    let counted = heap(&["pairs", server.url()]).await?;
    let [redis, memory, handed_over, bare] = counted[..] else {
        bail!("the counting program says {counted:?}");
    };
    let beside = format!("{bare:.1} of them in the Redis client; handed over {handed_over:.1}");
    let report = &mut bench.report;
    report.row("heap allocations a pair", AtMost(10.0), redis, beside);
    let what = "heap allocations a pair, without those of the Redis client";
    report.fact(what, redis - bare, String::new());
    let what = "heap allocations a pair on the memory store";
    report.row(what, AtMost(4.0), memory, String::new());
    Ok(())
}

/// The output of the program with the counting allocator.
async fn heap(arguments: &[&str]) -> Result<Vec<f64>> {
    let program = std::env::current_exe()?.with_file_name("bench-heap");
    let output = Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await?;
    if !output.status.success() {
        bail!(
            "the counting program failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let words = String::from_utf8(output.stdout)?;
    words
        .split_whitespace()
        .map(|word| word.parse().context("a number"))
        .collect()
}
