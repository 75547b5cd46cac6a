//! Counts the allocations of this crate. `bench` runs it and reads its output.
//!
//! ```text
//! bench-heap pairs <url>             allocations a pair on Redis, a pair in memory, a section that is handed over, two
//!                                    scripts on a bare handle
//! bench-heap holds <urls> <number>   takes that many locks, then answers each line with figures; see `holds`
//! ```

use std::alloc::System;

use anyhow::{Result, bail};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;
use tower_distributed_lock::{LockClient, LockError, MemoryStore, RedisStore};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pairs", url] => pairs(url).await,
        ["holds", urls, number] => holds(urls, number.parse()?).await,
        _ => bail!("this is run by the benches"),
    }
}

async fn pairs(url: &str) -> Result<()> {
    const PAIRS: usize = 2_000;
    let redis = LockClient::new(RedisStore::connect(url).await?);
    let memory = LockClient::new(MemoryStore::new());
    for client in [&redis, &memory] {
        let pair = async || client.lock("counted").acquire().await?.release().await;
        println!("{}", each(PAIRS, pair).await?);
    }
    // Sections of existing tasks, so that the tasks themselves are not counted.
    const TASKS: usize = 64;
    let crowd = async |rounds: usize| {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let client = redis.clone();
            tasks.spawn(async move {
                for _ in 0..rounds {
                    drop(client.lock("counted").await?);
                }
                Ok::<_, LockError>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        anyhow::Ok(())
    };
    let few = count(crowd(10)).await?;
    let many = count(crowd(110)).await?;
    println!(
        "{}",
        (many.saturating_sub(few)) as f64 / (TASKS * 100) as f64
    );
    println!("{}", bare(url, PAIRS).await?);
    Ok(())
}

/// Two scripts with as many keys and arguments as a pair has, from commands that exist already.
async fn bare(url: &str, pairs: usize) -> Result<f64> {
    let client = redis::Client::open(url)?;
    let mut handle = client.get_multiplexed_async_connection().await?;
    let script = redis::Script::new("return 0");
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.get_hash()).arg(5);
    for word in 0..10 {
        command.arg(format!("bare:{word}"));
    }
    script.prepare_invoke().load_async(&mut handle).await?;
    for _ in 0..100 {
        handle.send_packed_command(&command).await?;
    }
    let counted = count(async {
        for _ in 0..2 * pairs {
            handle.send_packed_command(&command).await?;
        }
        Ok(())
    });
    Ok(counted.await? as f64 / pairs as f64)
}

async fn each(pairs: usize, pair: impl AsyncFn() -> Result<(), LockError>) -> Result<f64> {
    for _ in 0..100 {
        pair().await?;
    }
    let counted = count(async {
        for _ in 0..pairs {
            pair().await?;
        }
        Ok(())
    });
    Ok(counted.await? as f64 / pairs as f64)
}

/// Allocations, reallocations included, while `work` runs.
async fn count(work: impl Future<Output = Result<()>>) -> Result<usize> {
    let allocations = |stats: Stats| stats.allocations + stats.reallocations;
    let before = allocations(HEAP.stats());
    work.await?;
    Ok(allocations(HEAP.stats()) - before)
}

/// Prints how many bytes a hold takes once all are held. Then it answers each line with the number of live tasks and that of lost
/// holds, and holds until its input ends. Several addresses, with commas between them, are nodes of a cluster.
async fn holds(urls: &str, number: usize) -> Result<()> {
    let store = match urls.contains(',') {
        true => RedisStore::cluster(urls.split(',')).connect().await?,
        false => RedisStore::connect(urls).await?,
    };
    let client = LockClient::new(store);
    // The one-time allocations of a connection and a queue come before the count.
    take(&client, "warm", 1_000).await?;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let before = in_use();
    let held = take(&client, "held", number).await?;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    println!("{}", (in_use() - before) as f64 / number as f64);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        let alive = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let lost = held.iter().filter(|guard| guard.is_lost()).count();
        println!("{alive} {lost}");
    }
    std::process::exit(0)
}

async fn take(
    client: &LockClient,
    prefix: &str,
    number: usize,
) -> Result<Vec<tower_distributed_lock::LockGuard>> {
    const TASKS: usize = 64;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, prefix) = (client.clone(), prefix.to_owned());
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for n in (task..number).step_by(TASKS) {
                guards.push(client.lock(format!("{prefix}:{n}")).await?);
            }
            Ok::<_, LockError>(guards)
        });
    }
    let mut guards = Vec::with_capacity(number);
    while let Some(taken) = tasks.join_next().await {
        guards.extend(taken??);
    }
    Ok(guards)
}

fn in_use() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}
