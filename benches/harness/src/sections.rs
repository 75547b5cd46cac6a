//! The sections of the benches, which can run one by one.

mod fair;
mod fleet;
mod handoff;
mod held;
mod hot;
mod layer;
mod memory;
mod mixed;
mod mixed_readers;
mod pace;
mod permits;
mod postgres;
mod profile;
mod reads;
mod scripts;
mod uncontended;
mod waiters;
mod watchdog;

use anyhow::{Result, bail};

use crate::Bench;

/// In the order in which they run. The last runs only when it is named: it has no target.
pub(crate) const NAMES: [&str; 18] = [
    "uncontended",
    "scripts",
    "hot",
    "held",
    "fair",
    "fleet",
    "mixed",
    "mixed-readers",
    "reads",
    "handoff",
    "layer",
    "memory",
    "watchdog",
    "waiters",
    "permits",
    "postgres",
    "profile",
    ON_REQUEST,
];

pub(crate) const ON_REQUEST: &str = "pace";

pub(crate) async fn run(name: &str, bench: &mut Bench) -> Result<()> {
    match name {
        "uncontended" => uncontended::run(bench).await,
        "hot" => hot::run(bench).await,
        "held" => held::run(bench).await,
        "fair" => fair::run(bench).await,
        "fleet" => fleet::run(bench).await,
        "mixed" => mixed::run(bench).await,
        "mixed-readers" => mixed_readers::run(bench).await,
        "reads" => reads::run(bench).await,
        "handoff" => handoff::run(bench).await,
        "layer" => layer::run(bench).await,
        "memory" => memory::run(bench).await,
        "watchdog" => watchdog::run(bench).await,
        "waiters" => waiters::run(bench).await,
        "permits" => permits::run(bench).await,
        "scripts" => scripts::run(bench).await,
        "postgres" => postgres::run(bench).await,
        "profile" => profile::run(bench).await,
        ON_REQUEST => pace::run(bench).await,
        _ => bail!("no such section"),
    }
}

/// The text before the table.
pub(crate) fn preamble() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    Ok(format!(
        "# Results\n\nWritten by `cargo bench`, on a machine with {cores} cores that clients and Redis shared. Only the ratios mean something \
         elsewhere.\n\n"
    ))
}
