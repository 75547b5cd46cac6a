//! One history: a store, its faults, and everybody who uses it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_distributed_lock::testing::{Fault, Faults, FaultyStore, Tally};
use tower_distributed_lock::{Inspect, LockClient, LockMode, MemoryStore, Owner};

use super::caller::Caller;
use super::flawed::{Flaw, Flawed};
use super::log::{Counts, Log, Violation};
use super::section::judge;
use super::waits::Waits;
use super::witness::Witness;

const CLIENTS: usize = 2;
const CALLERS: usize = 3;
const ROUNDS: usize = 4;

/// How long a free lock may stay untaken while somebody waits: a poll, and two ways there and back.
const POLL: Duration = Duration::from_millis(1_050);

/// Everything late has arrived, and every lease is over.
const QUIET: Duration = Duration::from_secs(15);

/// Every withdrawal is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(130);

/// How bad things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Slow, and nothing else.
    Calm,
    /// Wake-ups are lost.
    Deaf,
    Flaky,
    Hostile,
}

impl Weather {
    fn faults(self) -> Faults {
        let slow = Faults::none().chance(Fault::Slow, 0.7);
        match self {
            Self::Calm => slow,
            Self::Deaf => slow.chance(Fault::WakeupLost, 0.5),
            Self::Flaky => Faults::flaky(),
            Self::Hostile => Faults::hostile(),
        }
    }

    fn bound(self) -> Option<Duration> {
        match self {
            Self::Calm => Some(POLL),
            // The readers who go first are woken by one poll, the writers behind them by the next.
            Self::Deaf => Some(2 * POLL),
            Self::Flaky | Self::Hostile => None,
        }
    }
}

/// What came of a history.
pub(super) struct History {
    pub(super) violations: Vec<Violation>,
    pub(super) overlaps: u64,
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    pub(super) trace: Vec<String>,
}

/// Lets a history happen. The seed determines all of it.
pub(super) fn run(seed: u64, weather: Weather, flaw: Flaw, traced: bool) -> History {
    // The client draws its jitter from the thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(history(seed, weather, flaw, traced))
}

type Store = FaultyStore<Witness<Flawed<MemoryStore>>>;

async fn history(seed: u64, weather: Weather, flaw: Flaw, traced: bool) -> History {
    let mut random = Rng::with_seed(seed);
    let log = Arc::new(Log::new(traced));
    let waits = Arc::new(Waits::new(log.clone(), weather.bound()));
    let flawed = Flawed::new(MemoryStore::new(), flaw);
    let witness = Witness::new(flawed, log.clone(), waits.clone());
    let store: Store = FaultyStore::new(witness.clone(), weather.faults(), random.u64(..));
    let clients = [(); CLIENTS].map(|()| LockClient::new(store.clone()));
    let mut callers = JoinSet::new();
    for (c, locks) in clients.iter().enumerate() {
        let shared = Owner::new();
        for n in 0..CALLERS {
            let caller = Caller {
                name: format!("{c}.{n}"),
                locks: locks.clone(),
                log: log.clone(),
                witness: witness.clone(),
                waits: waits.clone(),
                shared: shared.clone(),
                random: random.fork(),
            };
            callers.spawn(caller.run(ROUNDS));
        }
    }
    callers.join_all().await;
    // What the store is made to forget is forgotten while the faults blow.
    let tally = store.tally();
    nothing_is_left(&store, &log, &clients).await;
    conclude(&log, weather, tally)
}

fn conclude(log: &Log, weather: Weather, tally: Tally) -> History {
    let (mut violations, sections, counts, trace) = log.close();
    let verdict = judge(sections, |_, _| weather != Weather::Hostile);
    for (promise, one, other) in &verdict.broken {
        let text = format!("{one:?} and {other:?}");
        violations.push(Violation { promise, text });
    }
    History {
        violations,
        overlaps: verdict.overlaps,
        tally,
        counts,
        trace,
    }
}

/// In good weather, all calms down, and everybody gets everything.
async fn nothing_is_left(store: &Store, log: &Log, clients: &[LockClient]) {
    store.set(Faults::none());
    sleep(QUIET).await;
    let witness = store.inner();
    let keys = witness.book().keys();
    for key in &keys {
        let seen = witness.inner().inspect(key).await.unwrap();
        if seen.is_held() || !seen.waiters.is_empty() {
            log.violated("L8", format!("{key} is left: {seen:?}"));
        }
    }
    for locks in clients {
        if locks.keys_in_use() > 0 {
            let text = format!("{} keys are in use for ever", locks.keys_in_use());
            log.violated("L8", text);
        }
        for key in ["a", "b", "x", "y"] {
            let mode = match key {
                "a" | "b" => LockMode::Fair,
                _ => LockMode::Write,
            };
            let request = locks.lock(key).mode(mode).wait(Duration::from_secs(5));
            let released = match request.await {
                Ok(guard) => guard.release().await,
                Err(error) => Err(error),
            };
            if let Err(error) = released {
                log.violated("L6", format!("{key} cannot be had at the end: {error}"));
            }
        }
    }
    sleep(FORGOTTEN).await;
    if !witness.inner().inner().is_empty() {
        log.violated("L8", "something is left in the store".into());
    }
}
