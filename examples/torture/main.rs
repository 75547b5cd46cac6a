//! Tortures locks, and checks the promises.
//!
//! ```text
//! $ cargo run --release -p tower-distributed-lock-tests --example torture -- --minutes 1 --procs 2 --store redis
//! torture: redis, 2 processes, 64 s, seed 692242
//!
//! operations                       10407
//! sections                          4290
//!   confirmed                       3825
//!   lost                              37
//!   killed                            13
//! raw overlaps                       322
//!
//! fault                           struck       hit  a hit is when
//! FLUSHALL                             8         8  locks were held
//! SIGSTOP past the lease               9         8  it was working under a lock
//!
//! promise                         broken  it would be broken if
//! S1                                   0  two held one key while the store kept its data
//! S5                                   0  two that were confirmed overlapped
//! ```
//!
//! Worker processes take random locks in every mode, hold them for a while or too long, release, drop or cancel. Meanwhile
//! they are killed and paused, their servers restarted and flushed, their connections cut and delayed. Every section under a
//! lock is recorded with the machine's monotonic clock; at the end the sections of all processes are compared.
//!
//! It needs `redis-server` (or the binary in `REDIS_SERVER`) for `--store redis` and `quorum`, and starts its own, on free
//! loopback ports; and PostgreSQL for `--store postgres`, in a directory of its own.

mod blow;
mod clock;
mod crew;
mod event;
mod habits;
mod history;
mod leave;
mod memory;
mod options;
mod pulse;
mod redis;
mod report;
mod section;
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
mod support;
mod wish;
mod work;
mod worker;

use std::process::ExitCode;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use options::{Role, Store};
use support::PostgresServer;
use tower_distributed_lock::MemoryStore;
use tower_distributed_lock_postgres::PostgresStore;

/// Resolves at the first SIGINT or SIGTERM.
async fn asked_to_stop() {
    let handled = "signals can be handled";
    let mut interrupt = signal(SignalKind::interrupt()).expect(handled);
    let mut terminate = signal(SignalKind::terminate()).expect(handled);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = match options::read()? {
        Role::Help(text) => {
            print!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        Role::Worker(orders) => {
            worker::run(serde_json::from_str(&orders)?).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Role::Parent(options) => options,
    };
    let torture = async {
        match options.store {
            Store::Memory => memory::torture(&options, MemoryStore::new()).await,
            Store::Postgres => {
                let database = PostgresServer::shared().database().await;
                let store = PostgresStore::connect(&database.config()).await?;
                memory::torture(&options, store).await
            }
            Store::Redis | Store::Quorum => redis::torture(&options).await,
        }
    };
    let report = tokio::select! {
        report = torture => report?,
        // Servers and workers end when they are dropped.
        () = asked_to_stop() => bail!("stopped before the end"),
    };
    println!("\n{report}");
    let complaints = report.complaints();
    for complaint in &complaints {
        println!("NOT AS PROMISED: {complaint}");
    }
    Ok(match complaints.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
