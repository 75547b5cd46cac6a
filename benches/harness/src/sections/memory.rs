//! The memory store, beside bare mutexes.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_distributed_lock::{LockClient, MemoryStore};

use crate::Bench;
use crate::report::Target::AtLeast;
use crate::samples::{Rate, median, ratio};

const TASKS: usize = 64;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = if bench.quick { 1_000 } else { 5_000 };
    let mut rates = [const { Vec::new() }; 4];
    for repetition in 0..bench.repetitions(5) {
        bench
            .report
            .progress(&format!("memory store, repetition {}", repetition + 1));
        let client = LockClient::new(MemoryStore::new());
        let bare = Arc::new(Bare::new());
        let mutex = Arc::new(tokio::sync::Mutex::new(()));
        let found = [
            rate(rounds, |task| {
                pairs(client.clone(), format!("apart:{task}"), rounds)
            })
            .await?,
            rate(rounds, |task| {
                bare_pairs(bare.clone(), format!("apart:{task}"), rounds)
            })
            .await?,
            rate(rounds, |_| pairs(client.clone(), "one".into(), rounds)).await?,
            rate(rounds, |_| turns(mutex.clone(), rounds)).await?,
        ];
        found
            .into_iter()
            .zip(&mut rates)
            .for_each(|(rate, rates)| rates.push(rate));
    }
    let [apart, bare, one, mutex] = &rates;
    let beside = |ours: &[f64], limit: &[f64]| {
        format!("{} against {}", Rate(median(ours)), Rate(median(limit)))
    };
    bench.report.row(
        "memory store, distinct keys / sharded map of bare mutexes",
        AtLeast(0.25),
        ratio(apart, bare),
        beside(apart, bare),
    );
    bench.report.row(
        "memory store, one key / tokio::sync::Mutex",
        AtLeast(0.5),
        ratio(one, mutex),
        beside(one, mutex),
    );
    Ok(())
}

async fn rate<F>(rounds: usize, task: impl Fn(usize) -> F) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let began = Instant::now();
    let mut tasks: JoinSet<_> = (0..TASKS).map(task).collect();
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok((TASKS * rounds) as f64 / began.elapsed().as_secs_f64())
}

async fn pairs(client: LockClient, key: String, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        client.lock(key.as_str()).await?.release().await?;
    }
    Ok(())
}

async fn turns(mutex: Arc<tokio::sync::Mutex<()>>, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        drop(mutex.lock().await);
    }
    Ok(())
}

async fn bare_pairs(map: Arc<Bare>, key: String, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        ensure!(map.take(&key), "nobody else wants it");
        map.give(&key);
    }
    Ok(())
}

/// The least that a map of locks can be: who is in it is locked.
struct Bare {
    hasher: RandomState,
    shards: [Mutex<HashSet<String>>; 64],
}

impl Bare {
    fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn take(&self, key: &str) -> bool {
        self.on(key, |held| held.insert(key.to_owned()))
    }

    fn give(&self, key: &str) {
        self.on(key, |held| held.remove(key));
    }

    fn on<T>(&self, key: &str, change: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % self.shards.len()];
        change(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
