//! The limits: bare sockets with exactly the commands that this crate sends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::recipe::Recipe;
use crate::samples::Latencies;
use crate::server::Server;

const RESPONSE: Duration = Duration::from_secs(3);

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
        let read = read(&mut socket, &mut chunk)?;
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
                        let read = read(&mut socket, &mut chunk)?;
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
        read(&mut socket, &mut chunk)?;
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

/// Reads, also if a signal interrupts it: a process that the benches started may end at any time.
fn read(socket: &mut TcpStream, chunk: &mut [u8]) -> Result<usize> {
    loop {
        match socket.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return Ok(read?),
        }
    }
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
