//! The fault matrix: every fault that the guarantees name, on a real server.
//!
//! Each test injects its fault and shows that it affected work under way: the proxy has caught bytes, the server has
//! counted an error, or an answer was outstanding. It asserts the promises during the fault, and ends with
//! [`works_again`], in which the same clients take and release locks in every mode, and leave nothing. [`matrix`] lists all faults
//! with the tests that cover them; some of these tests are in other modules.

mod clock;
mod connections;
mod dropped;
mod foreign;
mod full;
mod idempotent;
mod matrix;
mod network;
mod outages;
pub(crate) mod processes;
mod runtimes;
mod stalled;
mod wiped;

use std::error::Error;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower_distributed_lock::{LockClient, LockError, LockGuard, LockMode, RedisStore};

use crate::support::{Dump, RedisServer, eventually};

/// The limit for events that should happen at once, on a busy machine. Shorter than the default lease of 30 s.
const SOON: Duration = Duration::from_secs(20);

/// Longer than any fault lasts.
const PATIENT: Duration = Duration::from_secs(60);

/// A key for permits alone: Redis keeps its name for them for a day.
const PERMITS: &str = "again, with permits";

const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Read,
    LockMode::Write,
];

/// A mode that a hold in `mode` excludes.
fn rival(mode: LockMode) -> LockMode {
    match mode {
        LockMode::Read => LockMode::Write,
        LockMode::Write => LockMode::Read,
        other => other,
    }
}

/// A client that stands for another process.
async fn client(url: String) -> LockClient {
    LockClient::new(RedisStore::connect(url).await.expect("Redis is there"))
}

/// A client with short time limits.
async fn hasty_client(url: String) -> LockClient {
    let store = RedisStore::builder(url)
        .response_timeout(Duration::from_secs(1))
        .connect_timeout(Duration::from_secs(1));
    LockClient::new(store.connect().await.expect("Redis is there"))
}

/// One hold in each mode, on a key with the mode's name.
async fn hold_everything(locks: &LockClient) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for mode in MODES {
        let guard = locks.lock(mode.as_str()).mode(mode).await;
        guards.push(guard.expect("free"));
    }
    guards
}

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// Starts a request for a lock that is taken, and returns when it sleeps.
async fn waits(server: &RedisServer, locks: &LockClient, key: &str, mode: LockMode) -> Waiting {
    let asking = locks.lock(key).mode(mode).wait(PATIENT);
    let waiting = tokio::spawn(asking.acquire());
    let tagged = format!("{{{key}}}");
    eventually("it listens", SOON, async || {
        let channels = server.pubsub_channels().await;
        channels.keys().any(|channel| channel.contains(&tagged))
    })
    .await;
    waiting
}

/// Starts a waiting rival for each hold of [`hold_everything`].
async fn wait_for_everything(server: &RedisServer, locks: &LockClient) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for mode in MODES {
        waiting.push(waits(server, locks, mode.as_str(), rival(mode)).await);
    }
    waiting
}

/// The result of a task that ends soon.
async fn outcome<T>(task: JoinHandle<T>) -> T {
    let ended = timeout(SOON, task).await.expect("it ends soon");
    ended.expect("no panic")
}

async fn granted(waiting: Waiting) -> LockGuard {
    outcome(waiting).await.expect("it is granted")
}

/// Runs a command that must succeed.
async fn command(server: &RedisServer, words: &[&str]) {
    let command = redis::cmd(words[0]).arg(&words[1..]).to_owned();
    let done = command.exec_async(&mut server.connection().await).await;
    done.unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

/// A number in the answer to INFO: `info(&server, "stats", "rejected_connections:")`.
async fn info(server: &RedisServer, section: &str, field: &str) -> u64 {
    let text: String = redis::cmd("INFO")
        .arg(section)
        .query_async(&mut server.connection().await)
        .await
        .expect("INFO is allowed");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(field));
    let value = values.next().unwrap_or("0");
    value.trim().parse().expect("a number")
}

/// The number of errors of one kind that the server has returned.
async fn errors(server: &RedisServer, code: &str) -> u64 {
    info(server, "errorstats", &format!("errorstat_{code}:count=")).await
}

/// An error with its causes.
fn told(error: &(dyn Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}

/// The same clients work without a restart, and leave nothing.
async fn works_again(server: &RedisServer, clients: &[&LockClient]) {
    take_and_release(clients).await;
    nothing_is_left(server, clients).await;
}

async fn take_and_release(clients: &[&LockClient]) {
    let locked = MODES.map(|mode| ("again", mode));
    let permits = (PERMITS, LockMode::permits(1));
    for locks in clients {
        for (key, mode) in locked.into_iter().chain([permits]) {
            eventually("the client works again", SOON, async || {
                let asking = locks.lock(key).mode(mode).wait(Duration::from_secs(2));
                let guard = asking.await.map_err(|error| told(&error))?;
                guard.release().await.map_err(|error| told(&error))
            })
            .await;
        }
    }
}

async fn nothing_is_left(server: &RedisServer, clients: &[&LockClient]) {
    for locks in clients {
        eventually("no key is in use", SOON, async || {
            match locks.keys_in_use() {
                0 => Ok(()),
                some => Err(some),
            }
        })
        .await;
    }
    eventually("nothing is left in Redis", SOON, async || {
        let (dump, channels) = (server.dump().await, server.pubsub_channels().await);
        let rest = without_memories(dump);
        match rest.is_empty() && channels.is_empty() {
            true => Ok(()),
            false => Err((rest, channels)),
        }
    })
    .await;
}

/// Without the keys that remain on purpose: token counters, for two minutes the tombstones of unanswered attempts, and for a day the
/// number of free permits and their limit.
fn without_memories(mut dump: Dump) -> Dump {
    dump.retain(|key, entry| {
        let kept = ["tower_lock_void:", "tower_lock_busy:"];
        let is_kept = kept.iter().any(|kept| key.starts_with(kept))
            || key == PERMITS
            || *key == format!("tower_lock_limit:{{{PERMITS}}}");
        let ends = is_kept && entry.ttl.is_some();
        !ends && !key.starts_with("redisson_lock_token:")
    });
    dump
}
