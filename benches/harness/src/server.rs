//! A Redis server of a bench's own.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use tokio::process::{Child, Command};

/// A `redis-server` (or the binary in the environment variable `REDIS_SERVER`) on a free loopback port, without persistence;
/// killed on drop.
pub(crate) struct Server {
    process: Child,
    url: String,
    port: u16,
    watch: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_as(None).await
    }

    /// A node of a cluster, without slots. It keeps what it knows of the other nodes in this file.
    pub(crate) async fn start_node(file: &Path) -> Result<Self> {
        Self::start_as(Some(file)).await
    }

    async fn start_as(node: Option<&Path>) -> Result<Self> {
        // Another process may take the port before the server starts; then the server ends, and the next attempt uses another
        // port.
        for _ in 0..5 {
            if let Some(server) = Self::try_start(node).await? {
                return Ok(server);
            }
        }
        bail!("redis-server found no port to listen on")
    }

    async fn try_start(node: Option<&Path>) -> Result<Option<Self>> {
        let port = free_port()?;
        let mut process = spawn(port, node)?;
        let url = format!("redis://127.0.0.1:{port}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if process.try_wait()?.is_some() {
                return Ok(None);
            }
            let client = redis::Client::open(url.as_str())?;
            let Ok(mut watch) = client.get_multiplexed_async_connection().await else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let about: String = redis::cmd("INFO")
                .arg("server")
                .query_async(&mut watch)
                .await?;
            let ours = format!("process_id:{}", process.id().unwrap_or(0));
            if !about.lines().any(|line| line == ours) {
                return Ok(None);
            }
            return Ok(Some(Self {
                process,
                url,
                port,
                watch,
            }));
        }
        bail!("redis-server did not answer within 10 s")
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        Ok(command.query_async(&mut self.watch.clone()).await?)
    }

    /// How many times the server has read from its clients so far. What a client has pipelined is read at once.
    pub(crate) async fn reads(&self) -> Result<u64> {
        let stats: String = self.ask(&["INFO", "stats"]).await?;
        let read = |line: &str| line.strip_prefix("total_reads_processed:")?.parse().ok();
        let reads = stats.lines().find_map(read);
        reads.context("a server that does not count its reads")
    }

    /// The number of scripts that clients have called so far.
    pub(crate) async fn scripts(&self) -> Result<u64> {
        let calls = self.calls().await?;
        Ok(["evalsha", "eval"]
            .iter()
            .filter_map(|name| calls.get(*name))
            .sum())
    }

    /// The number of messages that were published so far.
    pub(crate) async fn messages(&self) -> Result<u64> {
        let calls = self.calls().await?;
        Ok(["publish", "spublish"]
            .iter()
            .filter_map(|name| calls.get(*name))
            .sum())
    }

    /// The number of executions of each command so far, by clients and by scripts.
    async fn calls(&self) -> Result<BTreeMap<String, u64>> {
        let stats: String = self.ask(&["INFO", "commandstats"]).await?;
        let call = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        Ok(stats.lines().filter_map(call).collect())
    }

    /// The id of its process; `None` if it has ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// The processor time of the server so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let id = self.id().context("the server has ended")?;
        cpu_time(&format!("/proc/{id}/stat"))
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Starts the program; `node`: as a node of a cluster, with this file.
fn spawn(port: u16, node: Option<&Path>) -> Result<Child> {
    let binary = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let mut command = Command::new(&binary);
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--maxclients", "2000"])
        .args(["--port", &port.to_string(), "--dir", "/"]);
    if let Some(file) = node {
        command
            .args(["--cluster-enabled", "yes", "--cluster-config-file"])
            .arg(file)
            .args(["--cluster-port", &free_port()?.to_string()]);
    }
    let spawned = command
        .stdout(Stdio::null())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    spawned.with_context(|| format!("`{binary}` cannot be run: install Redis, or set REDIS_SERVER"))
}

/// The processor time of a process, from its `/proc/…/stat`, in steps of 10 ms.
pub(crate) fn cpu_time(stat: &str) -> Result<Duration> {
    let text = fs::read_to_string(stat)?;
    // The name of the program, in brackets, may contain anything.
    let (_, fields) = text.rsplit_once(')').context("a strange /proc")?;
    let ticks = |index: usize| -> Result<u64> {
        let field = fields.split_whitespace().nth(index);
        Ok(field.context("a short /proc")?.parse()?)
    };
    Ok(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}
