//! Redisson: its algorithm in Rust, to measure it without a Java runtime; and the real one.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use redis::Script;
use redis::aio::{MultiplexedConnection, PubSubSink};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::program::Program;

pub(crate) const ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

pub(crate) const RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 0)
return 1";

/// `RedissonLock`: every waiter asks for itself; each message lets one waiter of the process ask again.
pub(crate) struct Algorithm {
    commands: MultiplexedConnection,
    scripts: [Script; 2],
    client: String,
    next: AtomicU64,
    latches: Arc<Latches>,
    sink: tokio::sync::Mutex<PubSubSink>,
    listener: JoinHandle<()>,
}

type Latches = Mutex<HashMap<String, Latch>>;

/// What the waiters of one channel share.
struct Latch {
    permits: Arc<Semaphore>,
    waiters: usize,
}

pub(crate) struct Lock {
    key: String,
    id: String,
}

impl Algorithm {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let client = redis::Client::open(url)?;
        let (sink, mut messages) = client.get_async_pubsub().await?.split();
        let latches = Arc::new(Latches::default());
        let told = latches.clone();
        let listener = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                if let Some(latch) = look(&told).get(message.get_channel_name()) {
                    latch.permits.add_permits(1);
                }
            }
        });
        Ok(Self {
            commands: client.get_multiplexed_async_connection().await?,
            scripts: [ACQUIRE, RELEASE].map(Script::new),
            client: format!(
                "{}-{}",
                std::process::id(),
                CLIENTS.fetch_add(1, Ordering::Relaxed)
            ),
            next: AtomicU64::new(0),
            latches,
            sink: sink.into(),
            listener,
        })
    }

    pub(crate) async fn lock(&self, key: &str) -> Result<Lock> {
        let id = format!(
            "{}:{}",
            self.client,
            self.next.fetch_add(1, Ordering::Relaxed)
        );
        let lock = Lock {
            key: key.to_owned(),
            id,
        };
        if self.ask(&lock).await?.is_none() {
            return Ok(lock);
        }
        let channel = channel(key);
        let permits = self.join(&channel).await?;
        while let Some(left) = self.ask(&lock).await? {
            // The holder's lease is the longest sleep.
            if let Ok(permit) = timeout(Duration::from_millis(left), permits.acquire()).await {
                permit?.forget();
            }
        }
        self.leave(&channel).await?;
        Ok(lock)
    }

    pub(crate) async fn unlock(&self, lock: Lock) -> Result<()> {
        let mut call = self.scripts[1].key(&lock.key);
        call.key(channel(&lock.key)).arg(&lock.id);
        let ended: Option<u64> = call.invoke_async(&mut self.commands.clone()).await?;
        ended.map(drop).context("the lock was lost")
    }

    async fn ask(&self, lock: &Lock) -> Result<Option<u64>> {
        let mut call = self.scripts[0].key(&lock.key);
        call.arg(30_000).arg(&lock.id);
        Ok(call.invoke_async(&mut self.commands.clone()).await?)
    }

    async fn join(&self, channel: &str) -> Result<Arc<Semaphore>> {
        // Held during the subscription: later tasks wait for it.
        let mut sink = self.sink.lock().await;
        let known = look(&self.latches).get_mut(channel).map(|latch| {
            latch.waiters += 1;
            latch.permits.clone()
        });
        if let Some(permits) = known {
            return Ok(permits);
        }
        let permits = Arc::new(Semaphore::new(0));
        let latch = Latch {
            permits: permits.clone(),
            waiters: 1,
        };
        look(&self.latches).insert(channel.to_owned(), latch);
        sink.subscribe(channel).await?;
        Ok(permits)
    }

    async fn leave(&self, channel: &str) -> Result<()> {
        let mut sink = self.sink.lock().await;
        let last = {
            let mut latches = look(&self.latches);
            let latch = latches.get_mut(channel).context("no client listens")?;
            latch.waiters -= 1;
            let last = latch.waiters == 0;
            if last {
                latches.remove(channel);
            }
            last
        };
        if last {
            sink.unsubscribe(channel).await?;
        }
        Ok(())
    }
}

impl Drop for Algorithm {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

fn look(latches: &Latches) -> MutexGuard<'_, HashMap<String, Latch>> {
    latches.lock().unwrap_or_else(PoisonError::into_inner)
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

/// Redisson 4.7.0 itself, behind the driver of the interop tests.
pub(crate) struct Live(Program);

/// The result of threads of [`Live`].
pub(crate) struct Outcome {
    pub(crate) sections: u64,
    pub(crate) elapsed: Duration,
    pub(crate) worst_wait: Duration,
}

impl Live {
    pub(crate) async fn start(url: &str) -> Result<Self> {
        let jar = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/interop/target/4.7.0/driver.jar");
        if !jar.exists() {
            bail!(
                "the Redisson driver is not built: run scripts/test once, or mvn package in tests/interop"
            );
        }
        let mut command = Command::new("java");
        let command = command
            .args(["-XX:+UseSerialGC", "-Xmx256m", "-jar"])
            .arg(&jar)
            .arg(url)
            .stderr(Stdio::null());
        let mut program = Program::start(command).context("there is no Java")?;
        let ready = program.hear().await?;
        if !ready.starts_with("ready 4.7.0") {
            bail!("the driver says: {ready}");
        }
        Ok(Self(program))
    }

    /// `waiters` threads enter `rounds` times each. `kind` is `reentrant` or `fair`.
    pub(crate) async fn burst(
        &mut self,
        kind: &str,
        key: &str,
        waiters: usize,
        rounds: usize,
    ) -> Result<Outcome> {
        self.ask(&format!("burst {kind} {key} {waiters} {rounds}"))
            .await
    }

    /// `threads` threads enter one section of `work` after the other for `time`. `kind` is `reentrant` or `write`.
    pub(crate) async fn closed_loop(
        &mut self,
        kind: &str,
        key: &str,
        threads: usize,
        time: Duration,
        work: Duration,
    ) -> Result<Outcome> {
        let (time, work) = (time.as_millis(), work.as_millis());
        self.ask(&format!("loop {kind} {key} {threads} {time} {work}"))
            .await
    }

    async fn ask(&mut self, command: &str) -> Result<Outcome> {
        let line = self.0.ask(&format!("1 {command}")).await?;
        let words: Vec<_> = line.split(' ').collect();
        let ["1", "ok", _, _, sections, elapsed, worst_wait] = words[..] else {
            bail!("the driver says: {line}");
        };
        Ok(Outcome {
            sections: sections.parse()?,
            elapsed: Duration::from_micros(elapsed.parse()?),
            worst_wait: Duration::from_micros(worst_wait.parse()?),
        })
    }
}
