//! The commands of a critical section, as a client sends them.

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_distributed_lock::{LockClient, LockMode, RedisStore};

use crate::server::Server;

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
    pub(crate) fn commands(&self, n: usize) -> impl Iterator<Item = Vec<String>> {
        let key = format!("{}{}", self.name, n % KEYS);
        let id = format!("{}{n}", self.id);
        let fill = move |word: &String| word.replace(KEY, &key).replace(&self.id, &id);
        let commands = self.commands.iter();
        commands.map(move |words| words.iter().map(&fill).collect())
    }

    /// The same in bytes.
    pub(crate) fn bytes(&self, n: usize) -> Vec<Vec<u8>> {
        self.commands(n).map(|words| encode(&words)).collect()
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
