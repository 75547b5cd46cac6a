//! The store on PostgreSQL beside Redis: what a service pays that has PostgreSQL and no Redis.
//!
//! Neither server waits for a disk: Redis has no persistence, and PostgreSQL runs with `fsync = off`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tower_distributed_lock::{LockClient, LockMode};
use tower_distributed_lock_postgres::PostgresStore;

use crate::Bench;
use crate::contender::{Contender, Locks};
use crate::load::{Load, Until};
use crate::samples::{Rate, median, ratio};
use crate::server::Server;

#[path = "../../../../crates/postgres/tests/server/mod.rs"]
mod postgres_server;

use postgres_server::Server as PostgresServer;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let named = std::env::var_os("POSTGRES_BIN").is_some();
    let is_installed = named || std::path::Path::new("/usr/lib/postgresql").exists();
    ensure!(
        is_installed,
        "it needs PostgreSQL: install it, or set POSTGRES_BIN to the folder of its programs"
    );
    bench.report.progress("the store on PostgreSQL");
    let redis = Server::start().await?;
    let postgres = tokio::task::block_in_place(PostgresServer::shared);
    let database = postgres.database().await;
    let ours = Arc::new(Contender::Confirmed.connect(redis.url()).await?);
    let store = PostgresStore::connect(&database.config()).await?;
    let theirs = Arc::new(Locks::ours(LockClient::new(store), LockMode::Reentrant));
    let time = Duration::from_millis(if bench.quick { 500 } else { 1_000 });
    let until = Until::After(time);
    for (what, load) in [
        ("uncontended pairs, 1 task", Load::apart(1, until)),
        ("uncontended pairs, 16 tasks", Load::apart(16, until)),
        ("sections of one key, 16 tasks", Load::on("hot", 16, until)),
    ] {
        let (mut on_redis, mut on_postgres) = (Vec::new(), Vec::new());
        for repetition in 0..=bench.repetitions(3) {
            let rates = [load.run_now(&ours).await?, load.run_now(&theirs).await?];
            // The first repetition is a warm-up.
            if repetition > 0 {
                on_redis.push(rates[0].rate());
                on_postgres.push(rates[1].rate());
            }
        }
        let rates = [&on_postgres, &on_redis].map(|rates| Rate(median(rates)));
        let [postgres, redis] = rates;
        bench.report.fact(
            &format!("PostgreSQL / Redis: {what}"),
            ratio(&on_postgres, &on_redis),
            format!("{postgres}; Redis {redis}"),
        );
    }
    Ok(())
}
