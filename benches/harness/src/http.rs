//! HTTP over loopback: servers in this process, their clients in another.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, bail};
use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::meter;
use crate::samples::Latencies;

/// The first argument of a process of clients.
pub(crate) const CLIENTS: &str = "--clients";

/// A router that is served until this is dropped.
pub(crate) struct Site {
    port: u16,
    serving: JoinHandle<()>,
}

impl Site {
    pub(crate) async fn serve(router: Router) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(async move {
            // It fails only if the listener does, and then so do the clients.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { port, serving })
    }

    /// Runs clients on `connections` kept-alive connections, each with one request at a time.
    pub(crate) async fn load(&self, connections: usize, time: Duration) -> Result<Load> {
        let arguments = [
            self.port.to_string(),
            connections.to_string(),
            time.as_millis().to_string(),
        ];
        let clients = Command::new(std::env::current_exe()?)
            .arg(CLIENTS)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output();
        let output = timeout(Duration::from_secs(30) + time, clients).await??;
        let words = String::from_utf8(output.stdout)?;
        let words: Vec<_> = words.trim().split(' ').collect();
        let [elapsed, clients, latencies] = words[..] else {
            bail!("the clients failed");
        };
        let nanos = |word: &str| anyhow::Ok(Duration::from_nanos(word.parse()?));
        Ok(Load {
            elapsed: nanos(elapsed)?,
            clients: nanos(clients)?,
            latencies: Latencies::decode(latencies)?,
        })
    }
}

/// What clients have seen.
pub(crate) struct Load {
    elapsed: Duration,
    /// Their processor time.
    pub(crate) clients: Duration,
    pub(crate) latencies: Latencies,
}

impl Load {
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The main function of a process of clients, on one thread: each connection writes a document of its own repeatedly.
pub(crate) fn live(port: &str, connections: &str, millis: &str) -> Result<()> {
    let (port, connections, time) = (
        port.parse()?,
        connections.parse()?,
        Duration::from_millis(millis.parse()?),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let mut clients = JoinSet::new();
        let began = Instant::now();
        for number in 0..connections {
            clients.spawn(client(port, number, began + time));
        }
        let mut latencies = Latencies::new();
        while let Some(done) = clients.join_next().await {
            for latency in done?? {
                latencies.record(latency);
            }
        }
        println!(
            "{} {} {}",
            began.elapsed().as_nanos(),
            meter::of_this_thread()?.as_nanos(),
            latencies.encode()
        );
        Ok(())
    })
}

/// Returns the raw latencies: a histogram for each connection would take time from the server.
async fn client(port: u16, number: usize, until: Instant) -> Result<Vec<Duration>> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
    socket.set_nodelay(true)?;
    let request =
        format!("PUT /documents/{number} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    let (mut latencies, mut answer) = (Vec::new(), Vec::with_capacity(1024));
    while Instant::now() < until {
        let asked = Instant::now();
        socket.write_all(request.as_bytes()).await?;
        answer.clear();
        // The handler's answers have no body.
        while !answer.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut answer).await? == 0 {
                bail!("the server hung up");
            }
        }
        if !answer.starts_with(b"HTTP/1.1 200") {
            bail!("the server says: {}", String::from_utf8_lossy(&answer));
        }
        latencies.push(asked.elapsed());
    }
    Ok(latencies)
}
