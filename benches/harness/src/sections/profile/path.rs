//! An operation, and what it takes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::callgrind::{Calls, Profile};
use crate::Bench;
use crate::samples::median;
use crate::server::Server;

/// The operations that ask no server, by the names that `bench-profile` has for them.
pub(super) const IN_MEMORY: [&str; 5] = ["pair", "bare", "box", "layer", "console"];

/// The same number for each of 64 tasks.
const OPERATIONS: usize = 64 * 32;

/// An operation of `bench-profile`.
pub(super) struct Path {
    pub(super) name: &'static str,
    /// The instructions of one operation, by place.
    pub(super) instructions: BTreeMap<&'static str, f64>,
    pub(super) calls: Calls<f64>,
    /// What a simulated processor counts in one operation, by callgrind's names.
    pub(super) events: HashMap<String, f64>,
    /// `None` if it waits for a server.
    pub(super) times: Option<Times>,
}

/// The time of an operation in memory, without a profiler, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// One after the other.
    pub(super) warm: f64,
    /// Each with cold caches.
    pub(super) cold: f64,
}

impl Path {
    pub(super) fn all(&self) -> f64 {
        self.instructions.values().sum()
    }
}

pub(super) fn valgrind() -> PathBuf {
    std::env::var_os("VALGRIND").map_or_else(|| "valgrind".into(), PathBuf::from)
}

fn program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("bench-profile"))
}

/// Medians of runs in turn.
pub(super) async fn times(bench: &Bench) -> Result<[Times; IN_MEMORY.len()]> {
    let mut samples = [const { [Vec::new(), Vec::new()] }; IN_MEMORY.len()];
    for repetition in 0..bench.repetitions(15) {
        bench
            .report
            .progress(&format!("times in memory, repetition {repetition}"));
        let loop_itself = run_alone(&["cold", "nothing", "5000"], None).await?;
        for (name, [warm, cold]) in IN_MEMORY.into_iter().zip(&mut samples) {
            warm.push(run_alone(&[name, "20000"], None).await?);
            cold.push(run_alone(&["cold", name, "5000"], None).await? - loop_itself);
        }
    }
    Ok(samples.map(|[warm, cold]| Times {
        warm: median(&warm),
        cold: median(&cold),
    }))
}

/// Without a profiler. Returns the nanoseconds of an operation.
async fn run_alone(words: &[&str], server: Option<&Server>) -> Result<f64> {
    let output = Command::new(program()?)
        .args(words)
        .args(server.map(Server::url))
        .output()
        .await?;
    let said = String::from_utf8(output.stdout)?;
    said.trim().parse().context("nanoseconds")
}

pub(super) async fn measure(name: &'static str, server: Option<&Server>) -> Result<Path> {
    if server.is_some() {
        // A server gets each script once.
        run_alone(&[name, "64"], server).await?;
    }
    // What the start of the program and the warm-up cost.
    let idle = profile(name, 0, server).await?;
    let busy = profile(name, OPERATIONS, server).await?;
    Ok(Path {
        name,
        instructions: busy.minus(&idle, OPERATIONS),
        calls: busy.calls_minus(&idle, OPERATIONS),
        events: busy.events_minus(&idle, OPERATIONS),
        times: None,
    })
}

async fn profile(name: &str, operations: usize, server: Option<&Server>) -> Result<Profile> {
    let file = std::env::temp_dir().join(format!("callgrind.{}.{name}", std::process::id()));
    let output = Command::new(valgrind())
        .args(["--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes"])
        .args(["--I1=32768,8,64", "--D1=32768,8,64"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program()?)
        .args([name, &operations.to_string()])
        .args(server.map(Server::url))
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "callgrind failed: {said}");
    let text = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    Profile::parse(&text)
}
