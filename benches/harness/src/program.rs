//! Another program that answers line by line.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::server::cpu_time;

/// How long a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// It ends with its value.
pub(crate) struct Program {
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = process.stdin.take().context("stdin is piped")?;
        let stdout = process.stdout.take().context("stdout is piped")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self {
            process,
            stdin,
            lines,
        })
    }

    /// Writes a line to it, and returns its next one.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<String> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await?;
        self.hear().await
    }

    pub(crate) async fn hear(&mut self) -> Result<String> {
        let line = timeout(PATIENCE, self.lines.next_line()).await??;
        line.context("a program has ended")
    }

    /// The processor time that it has used so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let id = self.process.id().context("a program has ended")?;
        cpu_time(&format!("/proc/{id}/stat"))
    }
}
