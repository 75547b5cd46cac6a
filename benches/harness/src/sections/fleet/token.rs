//! The control of the fleet: tasks that pass a token on bare handles, with as many scripts and messages a turn as a section of this
//! crate has. How much longer its worst wait is than one turn of every task is the doing of the machine.

use anyhow::{Context, Result};
use futures_util::StreamExt;
use redis::Cmd;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Counts, Figures, TIME, Turnout};
use crate::Bench;
use crate::samples::{Latencies, median};
use crate::server::Server;

/// A question, as one that is refused and as one that is granted.
const ASK: &str = "return redis.call('hexists', KEYS[1], ARGV[1])";

/// The two messages of a release: to Redisson's channel, and to the next.
const PASS: &str = "redis.call('publish', KEYS[2], 0) return redis.call('publish', KEYS[3], 0)";

const NAME: &str = "a token on bare handles";

/// Returns its rows of the table.
pub(super) async fn run(bench: &mut Bench) -> Result<String> {
    let mut table = String::new();
    for tasks in [2, 128] {
        bench
            .report
            .progress(&format!("fleet, {NAME}, {tasks} tasks"));
        let mut figures = Figures::default();
        for _ in 0..bench.repetitions(3) {
            measure(bench, tasks, &mut figures).await?;
        }
        figures.note(bench, NAME, tasks);
        table += &figures.line(NAME, tasks);
        bench.report.fact(
            &format!("fleet of {tasks}, {NAME}: worst wait / {tasks} turns"),
            median(&figures.worst),
            figures.waits(tasks),
        );
    }
    Ok(table)
}

async fn measure(bench: &Bench, tasks: usize, figures: &mut Figures) -> Result<()> {
    let server = Server::start().await?;
    let mut ring = Vec::new();
    for place in 0..tasks {
        ring.push(Member::connect(&server, place, tasks).await?);
    }
    let time = bench.time(TIME);
    let counts = Counts::of(&server).await?;
    let mut passing: JoinSet<_> = ring
        .into_iter()
        .map(|member| member.pass_on(Instant::now() + time))
        .collect();
    server.ask::<()>(&["PUBLISH", &channel(0), "0"]).await?;
    let mut turnout = Turnout::new();
    while let Some(done) = passing.join_next().await {
        let waits = done??;
        turnout.shares.push(waits.len());
        turnout.waits.merge(&waits);
    }
    turnout.most_before = tasks as u64 - 1;
    figures.add(&turnout, &counts.since(&server).await?, time);
    Ok(())
}

fn channel(place: usize) -> String {
    format!("tower_lock_token:{{fleet}}:{place}")
}

struct Member {
    commands: MultiplexedConnection,
    messages: PubSub,
    ask: Cmd,
    pass: Cmd,
}

impl Member {
    async fn connect(server: &Server, place: usize, tasks: usize) -> Result<Self> {
        let client = redis::Client::open(server.url())?;
        let mut commands = client.get_multiplexed_async_connection().await?;
        let mut messages = client.get_async_pubsub().await?;
        messages.subscribe(channel(place)).await?;
        let next = channel((place + 1) % tasks);
        let mut prepared = Vec::new();
        for script in [ASK, PASS] {
            let script = redis::Script::new(script);
            script.prepare_invoke().load_async(&mut commands).await?;
            let mut command = redis::cmd("EVALSHA");
            command.arg(script.get_hash()).arg(3);
            command.arg("fleet").arg("redisson_lock__channel:{fleet}");
            command.arg(&next).arg(format!("{place}")).arg(30_000);
            prepared.push(command);
        }
        let [ask, pass] = prepared.try_into().ok().context("two scripts")?;
        Ok(Self {
            commands,
            messages,
            ask,
            pass,
        })
    }

    /// Takes the token and passes it on until a time. Then it passes it on once more, so that all end.
    async fn pass_on(mut self, until: Instant) -> Result<Latencies> {
        let mut waits = Latencies::new();
        let mut messages = self.messages.on_message();
        loop {
            let asked = Instant::now();
            for _ in [
                "it is refused",
                "it is refused again, after it has subscribed",
            ] {
                self.commands.send_packed_command(&self.ask).await?;
            }
            messages.next().await.context("the server hung up")?;
            self.commands.send_packed_command(&self.ask).await?;
            waits.record(asked.elapsed());
            self.commands.send_packed_command(&self.pass).await?;
            if Instant::now() >= until {
                return Ok(waits);
            }
        }
    }
}
