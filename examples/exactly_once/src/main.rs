//! Once, with a database of your own: the two remedies that the guide explains, on SQLite.
//!
//! ```text
//! $ cd examples/exactly_once && cargo run
//! paid: balance 70
//! paid: balance 70
//! set by a holder: true
//! set late by the holder before it: false
//! ```
//!
//! `cargo test` kills the process at every step, and pauses it there past the next holder's write.

mod bank;
mod service;
mod step;

use std::path::Path;

use anyhow::{Context, bail};
use bank::Bank;
use service::pay;
use tower_distributed_lock::{LockClient, MemoryStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => demonstrate().await,
        // What the tests start, each in a process of its own.
        ["pay", database, key] => {
            let bank = Bank::open(Path::new(database)).await?;
            println!("{}", pay(bank, key).await?);
            Ok(())
        }
        ["set", database, balance] => {
            let bank = Bank::open(Path::new(database)).await?;
            println!("{}", set(&bank, balance.parse()?).await?);
            Ok(())
        }
        _ => bail!("usage: exactly_once [pay <database> <key> | set <database> <balance>]"),
    }
}

async fn demonstrate() -> anyhow::Result<()> {
    let file = std::env::temp_dir().join(format!("exactly-once-{}.db", std::process::id()));
    let bank = Bank::open(&file).await?;
    for _ in 0..2 {
        println!("{}", pay(bank.clone(), "order-42").await?);
    }
    println!("set by a holder: {}", set(&bank, 80).await?);
    // A holder that was paused, and whose lock another one had meanwhile, has a smaller token.
    let late = bank.set_fenced(1, 1_000_000).await?;
    println!("set late by the holder before it: {late}");
    std::fs::remove_file(file).context("the database can be removed")
}

/// Sets the balance under a lock. The row decides whether this holder is the newest one: `false` if it is not.
async fn set(bank: &Bank, balance: i64) -> anyhow::Result<bool> {
    let locks = LockClient::new(MemoryStore::new());
    step::reached("asked");
    let guard = locks.lock("lock:account").fenced().await?;
    let token = guard.fencing_token().context("it was asked for")?;
    step::reached("granted");
    let is_set = bank.set_fenced(token.value(), balance).await?;
    step::reached("set");
    guard.release().await?;
    step::reached("released");
    Ok(is_set)
}
