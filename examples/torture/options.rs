//! The command line.

use std::time::Duration;

use anyhow::{Result, bail};
use lexopt::prelude::*;

const HELP: &str = "\
Tortures the locks of several processes, and checks afterwards what was promised.

    cargo run --release -p tower-distributed-lock-tests --example torture -- [options]

    --store memory|redis|quorum|postgres   where the locks live; servers are started where they are needed (default redis)
    --minutes N, --seconds N      for how long (default 1 minute)
    --procs N                     how many processes; clients of one process on memory and postgres (default 4)
    --tasks N                     how many tasks in each (default 8)
    --keys N                      how many keys of each family (default 3)
    --lease MS                    how long a lock lives without renewal (default 1500)
    --gullible                    take every release for confirmed: the report must show broken promises
    --seed N                      of everything that is random, but for what the machine adds

It ends with a report, and with 1 if a promise was broken, a fault never hit, or no two locked sections overlapped.
";

/// The options of a run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) store: Store,
    pub(crate) time: Duration,
    pub(crate) procs: usize,
    pub(crate) tasks: usize,
    pub(crate) keys: usize,
    pub(crate) lease_ms: u64,
    pub(crate) gullible: bool,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Redis,
    Quorum,
    Postgres,
}

impl Store {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Quorum => "quorum",
            Self::Postgres => "postgres",
        }
    }

    /// The number of servers.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Memory | Self::Postgres => 0,
            Self::Redis => 1,
            Self::Quorum => 3,
        }
    }
}

/// The role of this process.
pub(crate) enum Role {
    Parent(Options),
    /// With its orders.
    Worker(String),
    Help(&'static str),
}

/// Reads the command line.
pub(crate) fn read() -> Result<Role> {
    let mut options = Options {
        store: Store::Redis,
        time: Duration::from_secs(60),
        procs: 4,
        tasks: 8,
        keys: 3,
        lease_ms: 1_500,
        gullible: false,
        seed: fastrand::u64(..1_000_000),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("store") => {
                options.store = match parser.value()?.to_str() {
                    Some("memory") => Store::Memory,
                    Some("redis") => Store::Redis,
                    Some("quorum") => Store::Quorum,
                    Some("postgres") => Store::Postgres,
                    other => bail!("no store {other:?}: memory, redis, quorum or postgres"),
                }
            }
            Long("minutes") => {
                options.time = Duration::from_secs_f64(60.0 * parser.value()?.parse::<f64>()?);
            }
            Long("seconds") => {
                options.time = Duration::from_secs_f64(parser.value()?.parse()?);
            }
            Long("procs") => options.procs = parser.value()?.parse()?,
            Long("tasks") => options.tasks = parser.value()?.parse()?,
            Long("keys") => options.keys = parser.value()?.parse()?,
            Long("lease") => options.lease_ms = parser.value()?.parse()?,
            Long("gullible") => options.gullible = true,
            Long("seed") => options.seed = parser.value()?.parse()?,
            // The program starts itself with this option.
            Long("worker") => return Ok(Role::Worker(parser.value()?.string()?)),
            Long("help") | Short('h') => return Ok(Role::Help(HELP)),
            other => return Err(other.unexpected().into()),
        }
    }
    if options.procs < 2 || options.tasks == 0 || options.keys < 2 {
        bail!("at least 2 processes, 1 task in each, and 2 keys: less would torture nothing");
    }
    Ok(Role::Parent(options))
}
