//! The limits: bare sockets with exactly the commands that this crate sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use crate::samples::Latencies;
use crate::server::Server;

const RESPONSE: Duration = Duration::from_secs(3);

/// The commands of one critical section, with a key and a hold id to be filled in.
#[derive(Clone)]
pub(crate) struct Recipe {
    commands: Vec<Vec<String>>,
    id: String,
    /// What the key of a section begins with; its number follows.
    name: &'static str,
}

/// What stands for the key in a recipe.
pub(crate) const KEY: &str = "recipe";

/// The number of different keys. The ids of more sections differ.
pub(crate) const KEYS: usize = 64;

impl Recipe {
    /// The commands of one acquire and release of this crate.
    pub(crate) async fn learn(server: &Server, mode: LockMode) -> Result<Self> {
        let client = LockClient::new(RedisStore::connect(server.url()).await?);
        let pair = async || {
            let guard = client.lock(KEY).mode(mode).await?;
            guard.release().await?;
            Ok(())
        };
        let prefix = client.id().to_string();
        let commands = Self::record(server, pair).await?;
        Self::of(commands, "limit", |word| word.starts_with(&prefix))
    }

    /// A recipe of commands with the key [`KEY`] and one hold id.
    pub(crate) fn of(
        commands: Vec<Vec<String>>,
        name: &'static str,
        is_id: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut words = commands.iter().flatten();
        let id = words.find(|word| is_id(word));
        let id = id.context("no command names the hold")?.clone();
        Ok(Self { commands, id, name })
    }

    /// The same for other keys: what a mode leaves under a key may refuse another mode.
    pub(crate) fn of_keys(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The commands with the key [`KEY`] that the second section sends. The first sends scripts that the server does not know
    /// yet.
    pub(crate) async fn record(
        server: &Server,
        mut section: impl AsyncFnMut() -> Result<()>,
    ) -> Result<Vec<Vec<String>>> {
        section().await?;
        let mut monitor = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await?;
        monitor.write_all(b"MONITOR\r\n").await?;
        let mut seen = Vec::new();
        while !seen.ends_with(b"+OK\r\n") {
            monitor.read_buf(&mut seen).await?;
        }
        section().await?;
        let last = server.ask::<String>(&["ECHO", "the end"]).await?;
        let mut text = String::new();
        while !text.contains(&last) {
            seen.clear();
            monitor.read_buf(&mut seen).await?;
            text.push_str(std::str::from_utf8(&seen)?);
        }
        let commands = text.lines().filter(|line| !line.contains(" lua] "));
        let commands = commands.filter(|line| line.contains(KEY));
        Ok(commands.map(words).collect())
    }

    /// The number of commands of a section.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// The words and the bytes of a section.
    pub(crate) fn size(&self) -> (usize, usize) {
        let words = self.commands.iter().map(Vec::len).sum();
        (words, self.bytes(0).iter().map(Vec::len).sum())
    }

    /// The commands of the section number `n`.
    fn commands(&self, n: usize) -> impl Iterator<Item = Vec<String>> {
        let key = format!("{}{}", self.name, n % KEYS);
        let id = format!("{}{n}", self.id);
        let fill = move |word: &String| word.replace(KEY, &key).replace(&self.id, &id);
        let commands = self.commands.iter();
        commands.map(move |words| words.iter().map(&fill).collect())
    }

    /// The same in bytes.
    fn bytes(&self, n: usize) -> Vec<Vec<u8>> {
        self.commands(n).map(|words| encode(&words)).collect()
    }
}

/// A bare handle of the Redis client that this crate uses. It sends the commands of this crate without this crate's code.
///
/// It is the limit of every client that shares connections among tasks: its tasks and the connection's task must wake each
/// other, unlike a task that owns its socket.
#[derive(Clone)]
pub(crate) struct Handle {
    connection: MultiplexedConnection,
    sections: Arc<[Vec<Cmd>]>,
}

impl Handle {
    /// Connects, and prepares this number of different sections.
    pub(crate) async fn connect(server: &Server, recipe: &Recipe, sections: usize) -> Result<Self> {
        let client = redis::Client::open(server.url())?;
        // With the time limits of this crate.
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE));
        let command = |words: Vec<String>| {
            let mut command = redis::cmd(&words[0]);
            words[1..].iter().for_each(|word| {
                command.arg(word);
            });
            command
        };
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection_with_config(&patient)
                .await?,
            sections: (0..sections)
                .map(|n| recipe.commands(n).map(command).collect())
                .collect(),
        })
    }

    /// One section, with `work` after its first command.
    pub(crate) async fn section<T>(&self, n: usize, work: impl Future<Output = T>) -> Result<T> {
        let mut connection = self.connection.clone();
        let (first, rest) = self.sections[n % self.sections.len()]
            .split_first()
            .context("a section has commands")?;
        connection.send_packed_command(first).await?;
        let done = work.await;
        for command in rest {
            connection.send_packed_command(command).await?;
        }
        Ok(done)
    }

    /// The duration of each command of some sections. The connection rests before each command, because a busy process
    /// answers sooner than one that must be woken.
    pub(crate) async fn rested(&self, sections: usize, rest: Duration) -> Result<Latencies> {
        let handle = self.clone();
        let working = tokio::spawn(async move {
            let (mut latencies, mut connection) = (Latencies::new(), handle.connection.clone());
            for command in handle.sections.iter().cycle().take(sections).flatten() {
                tokio::time::sleep(rest).await;
                let asked = Instant::now();
                connection.send_packed_command(command).await?;
                latencies.record(asked.elapsed());
            }
            Ok(latencies)
        });
        working.await?
    }

    /// Tasks that each send one section after the other, spread over `handles`: the limit of this crate with its Redis client.
    /// Returns sections per second.
    pub(crate) async fn rate(handles: &[Self], tasks: usize, sections: usize) -> Result<f64> {
        let mut working = JoinSet::new();
        let began = Instant::now();
        for (task, handle) in (0..tasks).zip(handles.iter().cycle()) {
            let handle = handle.clone();
            working.spawn(async move {
                for _ in 0..sections / tasks {
                    handle.section(task, async {}).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = working.join_next().await {
            done??;
        }
        Ok(sections as f64 / began.elapsed().as_secs_f64())
    }

    /// The latencies of sections in one task, one after the other.
    pub(crate) async fn latencies(&self, sections: usize) -> Result<Latencies> {
        let handle = self.clone();
        let working = tokio::spawn(async move {
            let mut latencies = Latencies::new();
            for _ in 0..sections {
                let asked = Instant::now();
                handle.section(0, async {}).await?;
                latencies.record(asked.elapsed());
            }
            Ok(latencies)
        });
        working.await?
    }
}

/// Parses a command in the output of MONITOR. Our commands contain nothing that needs quoting.
fn words(line: &str) -> Vec<String> {
    line.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn encode(words: &[String]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    command.into_bytes()
}

/// One blocking socket for `tasks` independent tasks: after each answer, the next command of its task joins the next write.
/// Returns sections per second.
pub(crate) fn pipelined(
    server: &Server,
    recipe: &Recipe,
    tasks: usize,
    sections: usize,
) -> Result<f64> {
    let mut socket = connect(server)?;
    let commands: Vec<_> = (0..tasks).map(|task| recipe.bytes(task)).collect();
    let mut turns: Vec<usize> = vec![0; tasks];
    // Answers arrive in the order of the commands.
    let mut asked: std::collections::VecDeque<_> = (0..tasks).collect();
    let mut out: Vec<u8> = commands
        .iter()
        .flat_map(|commands| commands[0].clone())
        .collect();
    let (mut answers, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    let (mut done, mut open) = (0, tasks);
    let began = Instant::now();
    while open > 0 {
        socket.write_all(&out)?;
        out.clear();
        let read = socket.read(&mut chunk)?;
        answers.extend_from_slice(&chunk[..read]);
        let mut eaten = 0;
        while let Some(length) = answer(&answers[eaten..])? {
            eaten += length;
            let task = asked.pop_front().context("an answer without a question")?;
            turns[task] += 1;
            if turns[task] == recipe.len() {
                turns[task] = 0;
                done += 1;
                if done + open > sections {
                    open -= 1;
                    continue;
                }
            }
            out.extend_from_slice(&commands[task][turns[task]]);
            asked.push_back(task);
        }
        answers.drain(..eaten);
        if read == 0 {
            bail!("the server hung up");
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// `tasks` threads, each with a blocking socket of its own. Returns sections per second.
pub(crate) fn blocking(
    server: &Server,
    recipe: &Recipe,
    tasks: usize,
    sections: usize,
) -> Result<f64> {
    let barrier = Arc::new(Barrier::new(tasks + 1));
    let rounds = sections.div_ceil(tasks);
    let threads: Vec<_> = (0..tasks)
        .map(|task| {
            let (commands, barrier) = (recipe.bytes(task), barrier.clone());
            let socket = connect(server);
            std::thread::spawn(move || -> Result<()> {
                barrier.wait();
                let mut socket = socket?;
                let mut chunk = [0; 256];
                for _ in 0..rounds {
                    for command in &commands {
                        socket.write_all(command)?;
                        let read = socket.read(&mut chunk)?;
                        answer(&chunk[..read])?.context("half an answer")?;
                    }
                }
                Ok(())
            })
        })
        .collect();
    barrier.wait();
    let began = Instant::now();
    for thread in threads {
        thread.join().ok().context("a thread panicked")??;
    }
    Ok((rounds * tasks) as f64 / began.elapsed().as_secs_f64())
}

/// Round trips of a bare PING on a blocking socket.
pub(crate) fn blocking_pings(server: &Server, pings: usize) -> Result<Latencies> {
    let mut socket = connect(server)?;
    let (mut latencies, mut chunk) = (Latencies::new(), [0; 64]);
    for _ in 0..pings {
        let asked = Instant::now();
        socket.write_all(b"PING\r\n")?;
        let _ = socket.read(&mut chunk)?;
        latencies.record(asked.elapsed());
    }
    Ok(latencies)
}

/// Round trips of a bare PING on a socket of the runtime: the lower limit of an async client. The connection rests before
/// each.
pub(crate) async fn pings(server: &Server, pings: usize, rest: Duration) -> Result<Latencies> {
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await?;
    socket.set_nodelay(true)?;
    let pinging = tokio::spawn(async move {
        let (mut latencies, mut chunk) = (Latencies::new(), [0; 64]);
        for _ in 0..pings {
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let asked = Instant::now();
            socket.write_all(b"PING\r\n").await?;
            let _ = socket.read(&mut chunk).await?;
            latencies.record(asked.elapsed());
        }
        Ok(latencies)
    });
    pinging.await?
}

fn connect(server: &Server) -> Result<TcpStream> {
    let socket = TcpStream::connect(("127.0.0.1", server.port()))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(socket)
}

/// The length of the first answer, if it is complete: a number, nothing, or "OK".
fn answer(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    if bytes[0] != b':' && bytes[0] != b'+' && !bytes.starts_with(b"$-1") {
        bail!(
            "the server says: {}",
            String::from_utf8_lossy(&bytes[..end])
        );
    }
    Ok(Some(end + 2))
}
