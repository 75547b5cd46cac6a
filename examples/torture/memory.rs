//! Torture of several clients of one process, on a store that misbehaves.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_distributed_lock::{Inspect, LockClient, LockStore};
use tower_distributed_lock_testing::{Fault, Faults, FaultyStore};

use crate::blow::{Score, Scores};
use crate::clock::now;
use crate::habits::Habits;
use crate::history::History;
use crate::leave::leave;
use crate::options::{Options, Store};
use crate::redis::{is_over, progress};
use crate::report::Report;
use crate::work::Sink;
use crate::worker::{Orders, start};

/// Withdrawals are remembered for two minutes; everything else must be gone.
const LAPSED: Duration = Duration::from_secs(10);

/// Runs, and reports.
pub(crate) async fn torture<S: Inspect>(options: &Options, store: S) -> Result<Report> {
    let habits = Habits {
        keys: options.keys,
        tasks: options.tasks,
        lease_ms: options.lease_ms,
        gullible: options.gullible,
        ordered: true,
        permits: options.store == Store::Memory,
    };
    let store = FaultyStore::new(store, faults(), options.seed);
    let history = Arc::new(Mutex::new(History::default()));
    let (stopping, stop) = watch::channel(false);
    let mut crew = Vec::new();
    for n in 0..options.procs as u64 {
        let locks = LockClient::new(store.clone());
        let orders = Orders {
            urls: Vec::new(),
            habits: habits.clone(),
            seed: options.seed ^ n << 32,
            first: (n + 1) << 32,
        };
        let heard = history.clone();
        let sink: Sink = Arc::new(move |event| heard.lock().expect(NO_PANIC).add(n, event));
        crew.push((start(&locks, &orders, &sink, stop.clone()), locks, sink));
    }
    let began = Instant::now();
    flush_now_and_then(options, &store, &history).await;
    stopping.send_replace(true);
    // Waits for the end of the last outage.
    store.set(Faults::none());
    sleep(OUTAGE).await;
    let scores = scores(&store);
    let mut leaving = JoinSet::new();
    for (tasks, locks, sink) in crew {
        let habits = habits.clone();
        leaving.spawn(async move {
            tasks.join_all().await;
            leave(&locks, &habits, &sink).await;
        });
    }
    leaving.join_all().await;
    let time = began.elapsed();
    let history = std::mem::take(&mut *history.lock().expect(NO_PANIC));
    nothing_is_held(&store, &habits).await?;
    Ok(Report::new(options, time, scores, history))
}

/// Longer than the usual lease.
const OUTAGE: Duration = Duration::from_millis(2_500);

const NO_PANIC: &str = "no thread panics while it takes something down";

/// No hold vanishes at random, because the test must know every loss.
fn faults() -> Faults {
    Faults::hostile()
        .chance(Fault::Vanished, 0.0)
        .chance(Fault::Flushed, 0.0)
        .chance(Fault::Disconnected, 0.002)
        .timeout(Duration::from_millis(300))
        .outage(OUTAGE)
}

async fn flush_now_and_then<S: LockStore>(
    options: &Options,
    store: &FaultyStore<S>,
    history: &Mutex<History>,
) {
    let mut random = Rng::with_seed(options.seed);
    let began = Instant::now();
    while !is_over(
        options,
        began,
        &scores(store),
        &history.lock().expect(NO_PANIC),
    ) {
        sleep(Duration::from_millis(random.u64(200..2_000))).await;
        let before = now();
        store.flush().await;
        let mut history = history.lock().expect(NO_PANIC);
        history.forgot(before);
        progress(began.elapsed(), options.time, &scores(store), &history);
    }
}

fn scores<S: LockStore>(store: &FaultyStore<S>) -> Scores {
    let tally = store.tally();
    let named = [
        (Fault::RequestLost, "request lost"),
        (Fault::ReplyLost, "reply lost"),
        (Fault::Late, "request late"),
        (Fault::Twice, "request served twice"),
        (Fault::Slow, "slow"),
        (Fault::Busy, "store busy"),
        (Fault::Disconnected, "connection broken"),
        (Fault::WakeupLost, "wake-up lost"),
        (Fault::Flushed, "flush"),
    ];
    let score = |fault| Score {
        struck: tally.of(fault),
        hit: tally.of(fault),
        meaning: "it had its effect",
    };
    named.map(|(fault, name)| (name, score(fault))).into()
}

async fn nothing_is_held<S: Inspect>(store: &FaultyStore<S>, habits: &Habits) -> Result<()> {
    let began = Instant::now();
    for (key, _) in habits.keys() {
        loop {
            let seen = store.inner().inspect(&key.clone().into()).await?;
            if !seen.is_held() && seen.waiters.is_empty() {
                break;
            }
            if began.elapsed() > LAPSED {
                bail!("L8: {key} is left: {seen:?}");
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}
