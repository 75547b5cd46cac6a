//! A worker process: runs the orders in its argument, and stops when its parent sends a line or ends.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_distributed_lock::{LockClient, LockClientBuilder, Owner, RedisStore, StoreError};
use tower_distributed_lock_quorum::QuorumStore;

use crate::event::Event;
use crate::habits::Habits;
use crate::leave::leave;
use crate::pulse::Pulse;
use crate::work::{Sink, Task};

/// The orders of a worker, as its argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// The addresses of one server, or of all servers of a quorum.
    pub(crate) urls: Vec<String>,
    pub(crate) habits: Habits,
    pub(crate) seed: u64,
    /// The first number that it may use.
    pub(crate) first: u64,
}

/// Runs until the parent sends a line.
pub(crate) async fn run(orders: Orders) -> anyhow::Result<()> {
    let sink: Sink = Arc::new(say);
    let builder = client(&orders.urls)?;
    let (stopping, stop) = watch::channel(false);
    let orders_done = async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        match lines.next_line().await {
            Ok(Some(_)) => {}
            // The parent has ended, so the worker ends.
            Ok(None) | Err(_) => std::process::exit(0),
        }
    };
    let locks = builder.build();
    let tasks = start(&locks, &orders, &sink, stop);
    orders_done.await;
    stopping.send_replace(true);
    tasks.join_all().await;
    leave(&locks, &orders.habits, &sink).await;
    Ok(())
}

/// Starts `habits.tasks` tasks.
pub(crate) fn start(
    locks: &LockClient,
    orders: &Orders,
    sink: &Sink,
    stop: watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut random = Rng::with_seed(orders.seed);
    let numbers = Arc::new(AtomicU64::new(orders.first));
    let pulse = Pulse::start();
    let mut tasks = JoinSet::new();
    let mut shared = (Owner::new(), orders.first);
    for n in 0..orders.habits.tasks {
        if n % 2 == 0 {
            let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            shared = (Owner::new(), number);
        }
        let task = Task {
            locks: locks.clone(),
            habits: orders.habits.clone(),
            sink: sink.clone(),
            stop: stop.clone(),
            random: random.fork(),
            pulse: pulse.clone(),
            numbers: numbers.clone(),
            shared: shared.clone(),
        };
        tasks.spawn(task.run());
    }
    tasks
}

fn client(urls: &[String]) -> Result<LockClientBuilder, anyhow::Error> {
    let stores: Result<Vec<RedisStore>, StoreError> = urls
        .iter()
        .map(|url| {
            RedisStore::builder(&**url)
                .response_timeout(Duration::from_millis(500))
                .connect_timeout(Duration::from_millis(500))
                .connect_lazy()
        })
        .collect();
    let mut stores = stores?;
    Ok(match stores.len() {
        1 => LockClient::builder(stores.remove(0)),
        _ => LockClient::builder(QuorumStore::new(stores)?),
    })
}

/// Writes one line in one call: this process may be killed at any time.
fn say(event: Event) {
    let mut line = serde_json::to_vec(&event).expect("events can be written");
    line.push(b'\n');
    if std::io::stdout().write_all(&line).is_err() {
        std::process::exit(0);
    }
}
