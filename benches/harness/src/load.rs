//! The loads of the benches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::contender::Locks;
use crate::samples::Latencies;

/// The sections that have ended in this process.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The result of a load.
pub(crate) struct Outcome {
    pub(crate) sections: u64,
    pub(crate) elapsed: Duration,
    pub(crate) waits: Latencies,
    /// The most sections of others in this process that ended between a request, not the first of its task, and the end of its
    /// own section.
    pub(crate) most_before: u64,
    /// The total time for which the lock was held.
    pub(crate) held: Duration,
    pub(crate) longest: Duration,
}

impl Outcome {
    pub(crate) fn rate(&self) -> f64 {
        self.sections as f64 / self.elapsed.as_secs_f64()
    }
}

/// When a task ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    Rounds(usize),
    /// It enters no section after this time.
    After(Duration),
}

/// A load: `tasks` tasks, each in one critical section after the other.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// The key of every task; `None`: each has a key of its own.
    pub(crate) key: Option<String>,
    pub(crate) tasks: usize,
    pub(crate) until: Until,
    pub(crate) hold: Duration,
}

impl Load {
    /// Tasks that never meet.
    pub(crate) fn apart(tasks: usize, until: Until) -> Self {
        Self {
            key: None,
            tasks,
            until,
            hold: Duration::ZERO,
        }
    }

    /// Tasks that all want one key.
    pub(crate) fn on(key: &str, tasks: usize, until: Until) -> Self {
        Self {
            key: Some(key.to_owned()),
            tasks,
            until,
            hold: Duration::ZERO,
        }
    }

    pub(crate) fn holding(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Runs the load. All tasks are ready before `start`.
    pub(crate) async fn run(&self, locks: &Arc<Locks>, start: SystemTime) -> Result<Outcome> {
        let gate = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for number in 0..self.tasks {
            let key = self
                .key
                .clone()
                .unwrap_or_else(|| format!("apart:{number}"));
            tasks.spawn(work(
                locks.clone(),
                gate.clone(),
                key,
                self.until,
                self.hold,
            ));
        }
        tokio::task::block_in_place(|| {
            // A sleep of the runtime would be late by up to a millisecond.
            std::thread::sleep(start.duration_since(SystemTime::now()).unwrap_or_default());
        });
        let began = Instant::now();
        gate.add_permits(self.tasks);
        let mut outcome = Outcome {
            sections: 0,
            elapsed: Duration::ZERO,
            waits: Latencies::new(),
            most_before: 0,
            held: Duration::ZERO,
            longest: Duration::ZERO,
        };
        while let Some(done) = tasks.join_next().await {
            let Done {
                ended,
                held,
                longest,
                most_before,
                waits,
            } = done??;
            outcome.elapsed = outcome.elapsed.max(ended - began);
            outcome.held += held;
            outcome.most_before = outcome.most_before.max(most_before);
            outcome.longest = outcome.longest.max(longest);
            outcome.sections += waits.len() as u64;
            waits
                .into_iter()
                .for_each(|wait| outcome.waits.record(wait));
        }
        Ok(outcome)
    }

    /// Runs it now.
    pub(crate) async fn run_now(&self, locks: &Arc<Locks>) -> Result<Outcome> {
        self.run(locks, UNIX_EPOCH).await
    }
}

/// The result of one task.
struct Done {
    ended: Instant,
    held: Duration,
    longest: Duration,
    most_before: u64,
    /// Raw values, because a histogram for every task would take too much memory.
    waits: Vec<Duration>,
}

async fn work(
    locks: Arc<Locks>,
    gate: Arc<Semaphore>,
    key: String,
    until: Until,
    hold: Duration,
) -> Result<Done> {
    let (mut held, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut most_before = 0;
    let mut waits = Vec::with_capacity(16);
    gate.acquire().await?.forget();
    let began = Instant::now();
    let mut round = 0;
    loop {
        let goes_on = match until {
            Until::Rounds(rounds) => round < rounds,
            Until::After(time) => began.elapsed() < time,
        };
        if !goes_on {
            return Ok(Done {
                ended: Instant::now(),
                held,
                longest,
                most_before,
                waits,
            });
        }
        let ended = ENDED.load(Ordering::Relaxed);
        let section = locks.section(&key, hold).await?;
        let before = ENDED.fetch_add(1, Ordering::Relaxed) - ended;
        if round > 0 {
            most_before = most_before.max(before);
        }
        waits.push(section.entered - section.asked);
        let stayed = section.left - section.entered;
        held += stayed;
        longest = longest.max(stayed);
        round += 1;
    }
}
