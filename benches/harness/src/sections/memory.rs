//! The memory store, compared with bare mutexes.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, LockStore, Outcome};
use tower_distributed_lock::{LockClient, LockMode, MemoryStore};

use crate::Bench;
use crate::cores::one_thread_runtime;
use crate::report::Target::AtLeast;
use crate::samples::{Rate, median, ratio};

const TASKS: usize = 64;
const LEASE: Duration = Duration::from_secs(30);

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = if bench.quick { 1_000 } else { 5_000 };
    let mut figures = Figures::default();
    for repetition in 0..bench.repetitions(5) {
        bench
            .report
            .progress(&format!("memory store, repetition {}", repetition + 1));
        figures.add(rounds).await?;
    }
    let mut one_thread = Figures::default();
    for _ in 0..bench.repetitions(3) {
        one_thread = one_thread.add_in_one_thread(rounds).await?;
    }
    let Figures {
        store,
        bare,
        client,
        one_store,
        one_client,
        one_unconfirmed,
        mutex,
        waiters,
    } = &figures;
    let beside = |ours: &[f64], limit: &[f64]| {
        format!("{} against {}", Rate(median(ours)), Rate(median(limit)))
    };
    let report = &mut bench.report;
    report.row(
        "memory store, distinct keys / sharded map of bare mutexes",
        AtLeast(0.25),
        ratio(store, bare),
        beside(store, bare),
    );
    report.row(
        "memory store, one key / tokio::sync::Mutex",
        AtLeast(0.5),
        ratio(one_store, mutex),
        beside(one_store, mutex),
    );
    report.fact(
        "client on the memory store, distinct keys / sharded map of bare mutexes",
        ratio(client, bare),
        beside(client, bare),
    );
    report.fact(
        "client on the memory store, one key, unconfirmed / tokio::sync::Mutex",
        ratio(one_unconfirmed, mutex),
        beside(one_unconfirmed, mutex),
    );
    report.fact(
        "client on the memory store, one key, confirmed / tokio::sync::Mutex",
        ratio(one_client, mutex),
        beside(one_client, mutex),
    );
    report.fact(
        "a bare queue of waiters that wake each other, one key / tokio::sync::Mutex",
        ratio(waiters, mutex),
        beside(waiters, mutex),
    );
    let table = figures.table(&one_thread);
    report.note(&table);
    report.append(&table);
    Ok(())
}

/// Pairs per second, one value per repetition.
#[derive(Default)]
struct Figures {
    store: Vec<f64>,
    bare: Vec<f64>,
    client: Vec<f64>,
    one_store: Vec<f64>,
    one_client: Vec<f64>,
    one_unconfirmed: Vec<f64>,
    mutex: Vec<f64>,
    /// A lock whose waiters stand in a queue, each with a channel: what a client with a queue does at least.
    waiters: Vec<f64>,
}

impl Figures {
    async fn add_in_one_thread(mut self, rounds: usize) -> Result<Self> {
        let measuring = tokio::task::spawn_blocking(move || {
            let runtime = one_thread_runtime()?;
            runtime.block_on(self.add(rounds))?;
            Ok(self)
        });
        measuring.await?
    }

    fn table(&self, one_thread: &Self) -> String {
        let mut table = String::from(
            "## What a second thread costs in memory\n\n64 tasks; the time that passes for each pair.\n\n\
             | pairs | one thread, ns | all threads, ns |\n| --- | ---: | ---: |\n",
        );
        let rows: [(&str, fn(&Self) -> &[f64]); 8] = [
            ("sharded map of bare mutexes, distinct keys", |it| &it.bare),
            ("memory store, distinct keys", |it| &it.store),
            ("client, distinct keys", |it| &it.client),
            ("`tokio::sync::Mutex`", |it| &it.mutex),
            ("a bare queue of waiters that wake each other", |it| {
                &it.waiters
            }),
            ("memory store, one key", |it| &it.one_store),
            ("client, one key, unconfirmed", |it| &it.one_unconfirmed),
            ("client, one key, confirmed", |it| &it.one_client),
        ];
        for (name, rates) in rows {
            let [one, all] = [one_thread, self].map(|figures| 1e9 / median(rates(figures)));
            table += &format!("| {name} | {one:.0} | {all:.0} |\n");
        }
        table
    }

    async fn add(&mut self, rounds: usize) -> Result<()> {
        let store = MemoryStore::new();
        let client = LockClient::new(MemoryStore::new());
        let bare = Arc::new(Bare::new());
        let mutex = Arc::new(tokio::sync::Mutex::new(()));
        let apart = |task: usize| format!("apart:{task}");
        let of_store = |key: String| store_pairs(store.clone(), key, client.clone(), rounds);
        let of_client = |key: String| client_pairs(client.clone(), key, rounds);
        self.store
            .push(rate(rounds, |task| of_store(apart(task))).await?);
        self.bare
            .push(rate(rounds, |task| bare_pairs(bare.clone(), apart(task), rounds)).await?);
        self.client
            .push(rate(rounds, |task| of_client(apart(task))).await?);
        self.one_store
            .push(rate(rounds, |_| of_store("one".into())).await?);
        self.mutex
            .push(rate(rounds, |_| turns(mutex.clone(), rounds)).await?);
        let line = Arc::new(Waiters::held());
        let starter = tokio::spawn(start(line.clone()));
        self.waiters
            .push(rate(rounds, |_| queued(line.clone(), rounds)).await?);
        starter.await?;
        self.one_client
            .push(rate(rounds, |_| of_client("one".into())).await?);
        self.one_unconfirmed.push(
            rate(rounds, |_| {
                unconfirmed(client.clone(), "one".into(), rounds)
            })
            .await?,
        );
        Ok(())
    }
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

/// Direct calls of the store: acquire and release. A task that is refused yields and asks again, so that the store is
/// measured without a queue in front of it.
async fn store_pairs(
    store: MemoryStore,
    key: String,
    client: LockClient,
    rounds: usize,
) -> Result<()> {
    static GRANTS: AtomicU64 = AtomicU64::new(1);
    for _ in 0..rounds {
        let hold = Hold {
            key: key.as_str().into(),
            mode: LockMode::Reentrant,
            id: HoldId::new(client.id(), GRANTS.fetch_add(1, Ordering::Relaxed)),
        };
        let attempt = Attempt::new(hold, LEASE);
        while store.acquire(&attempt).await? != (Outcome::Granted { token: None }) {
            tokio::task::yield_now().await;
        }
        store.release(&attempt.hold, None).await?;
    }
    Ok(())
}

async fn client_pairs(client: LockClient, key: String, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        client.lock(key.as_str()).acquire().await?.release().await?;
    }
    Ok(())
}

async fn unconfirmed(client: LockClient, key: String, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        drop(client.lock(key.as_str()).acquire().await?);
    }
    Ok(())
}

async fn turns(mutex: Arc<tokio::sync::Mutex<()>>, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        drop(mutex.lock().await);
    }
    Ok(())
}

/// Releases the lock when all tasks wait for it. From then on each release passes it to one that waits.
async fn start(line: Arc<Waiters>) {
    while line.look().waiting.len() < TASKS {
        tokio::task::yield_now().await;
    }
    line.give();
}

async fn queued(line: Arc<Waiters>, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        line.take().await?;
        line.give();
    }
    Ok(())
}

async fn bare_pairs(map: Arc<Bare>, key: String, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        ensure!(map.take(&key), "no other task wants it");
        map.give(&key);
    }
    Ok(())
}

/// The simplest map of locks: a key in the map is locked.
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

/// The simplest lock with a queue: who releases wakes the first that waits, and passes the lock to it.
struct Waiters(Mutex<Line>);

struct Line {
    is_held: bool,
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl Waiters {
    fn held() -> Self {
        Self(Mutex::new(Line {
            is_held: true,
            waiting: VecDeque::new(),
        }))
    }

    fn look(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self) -> Result<()> {
        let turn = {
            let mut line = self.look();
            if !std::mem::replace(&mut line.is_held, true) {
                return Ok(());
            }
            let (wake, turn) = oneshot::channel();
            line.waiting.push_back(wake);
            turn
        };
        Ok(turn.await?)
    }

    fn give(&self) {
        let mut line = self.look();
        let next = line.waiting.pop_front();
        line.is_held = next.is_some();
        drop(line);
        if let Some(next) = next {
            // No task of the bench gives up its place.
            let _ = next.send(());
        }
    }
}
