//! What an uncontended pair costs the server, in each mode, beside Redisson's two scripts and a lock without a wake-up.
//!
//! The commands are pipelined from a plain socket: no client takes part.

use std::time::Duration;

use anyhow::{Context, Result};
use tower_distributed_lock::LockMode;

use crate::Bench;
use crate::recipe::{KEY, KEYS, Recipe};
use crate::redisson::{ACQUIRE, Live, RELEASE};
use crate::samples::digits;
use crate::server::Server;
use crate::wire;

/// The pairs of one repetition.
const PAIRS: usize = 40_000;

/// As rslock has them: the value of a key with an expiry.
const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

const ID: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let mut recipes = Vec::new();
    for (name, keys, mode) in [
        ("`Reentrant`", "reentrant", LockMode::Reentrant),
        ("`Write`", "write", LockMode::Write),
        ("`Read`", "read", LockMode::Read),
        ("`Fair`", "fair", LockMode::Fair),
        ("one of 8 permits", "permits", LockMode::permits(8)),
    ] {
        let recipe = Recipe::learn(&server, mode).await?;
        recipes.push((name, recipe.of_keys(keys)));
    }
    // What is left of the key that all recipes were learnt with.
    server.ask::<()>(&["FLUSHDB"]).await?;
    recipes.push(("Redisson's two scripts", redisson(&server).await?));
    recipes.push((
        "`SET NX PX`, and a script of `GET` and `DEL`",
        set(&server).await?,
    ));
    match live(&server).await {
        Ok(recipe) => recipes.push(("what Redisson 4.7.0 sends", recipe)),
        Err(error) => bench
            .report
            .note(&format!("  REDISSON ITSELF WAS NOT MEASURED: {error:#}")),
    }
    // All of several repetitions, because the kernel counts in steps of 10 ms.
    let mut spent = vec![Duration::ZERO; recipes.len()];
    let (repetitions, pairs) = (
        bench.repetitions(3),
        if bench.quick { PAIRS / 4 } else { PAIRS },
    );
    for repetition in 0..=repetitions {
        bench.report.progress(&format!(
            "what a pair costs the server, repetition {repetition}"
        ));
        for ((_, recipe), spent) in recipes.iter().zip(&mut spent) {
            let before = server.cpu()?;
            tokio::task::block_in_place(|| wire::pipelined(&server, recipe, KEYS, pairs))?;
            // The first repetition is a warm-up.
            if repetition > 0 {
                *spent += server.cpu()? - before;
            }
        }
    }
    let each = |spent: &Duration| spent.as_secs_f64() * 1e6 / (pairs * repetitions) as f64;
    let micros: Vec<f64> = spent.iter().map(each).collect();
    let mut table = String::from(
        "## What an uncontended pair costs the server\n\nProcessor time of the server, from commands of 64 keys that a plain socket \
         pipelines.\n\n| commands | words | bytes | server, µs |\n| --- | ---: | ---: | ---: |\n",
    );
    for ((name, recipe), micros) in recipes.iter().zip(&micros) {
        let (words, bytes) = recipe.size();
        table += &format!("| {name} | {words} | {bytes} | {} |\n", digits(*micros));
    }
    let report = &mut bench.report;
    report.note(&table);
    report.append(&table);
    let ours = micros[0];
    for ((name, _), theirs) in recipes.iter().zip(&micros).skip(5) {
        report.fact(
            &format!("server µs an uncontended pair / {name}"),
            ours / theirs,
            format!("{} µs against {} µs", digits(ours), digits(*theirs)),
        );
    }
    Ok(())
}

/// The scripts of Redisson's algorithm, as the benches have it.
async fn redisson(server: &Server) -> Result<Recipe> {
    let [acquire, release] = [load(server, ACQUIRE).await?, load(server, RELEASE).await?];
    let channel = format!("redisson_lock__channel:{{{KEY}}}");
    let commands = vec![
        words(&["EVALSHA", &acquire, "1", KEY, "30000", ID]),
        words(&["EVALSHA", &release, "2", KEY, &channel, ID]),
    ];
    Recipe::of(commands, "hash", |word| word == ID)
}

/// The commands of a lock without a wake-up.
async fn set(server: &Server) -> Result<Recipe> {
    let delete = load(server, DELETE).await?;
    let commands = vec![
        words(&["SET", KEY, ID, "NX", "PX", "30000"]),
        words(&["EVALSHA", &delete, "1", KEY, ID]),
    ];
    Recipe::of(commands, "set", |word| word == ID)
}

/// What Redisson itself sends.
async fn live(server: &Server) -> Result<Recipe> {
    let mut live = Live::start(server.url()).await?;
    let section = async || live.burst("reentrant", KEY, 1, 1).await.map(drop);
    let commands = Recipe::record(server, section).await?;
    let first = commands.first().context("it sends commands")?;
    let id = first.last().context("a command has words")?.clone();
    Recipe::of(commands, "live", |word| word == id)
}

async fn load(server: &Server, script: &str) -> Result<String> {
    server.ask(&["SCRIPT", "LOAD", script]).await
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
