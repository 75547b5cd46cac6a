//! The cost of renewals.

use std::time::Duration;

use anyhow::{Result, bail};
use redis::Value;
use tokio::process::Command;
use tokio::time::Instant;

use crate::Bench;
use crate::cluster::Cluster;
use crate::program::Program;
use crate::report::Target::AtMost;
use crate::samples::{Time, digits};
use crate::server::Server;

/// The time in which each hold is renewed once: a third of the default lease.
const INTERVAL: Duration = Duration::from_secs(10);

/// Scripts that take longer than this are reported.
const SLOW: Duration = Duration::from_micros(100);

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let holds: usize = if bench.quick { 20_000 } else { 100_000 };
    let server = Server::start().await?;
    let one = renew(bench, std::slice::from_ref(&server), holds).await?;
    drop(server);
    on_one_server(bench, &one, holds)?;
    let cluster = Cluster::start().await?;
    let three = renew(bench, &cluster.masters, holds).await?;
    on_three_masters(bench, &three, &one, holds);
    Ok(())
}

/// What one interval of renewals costs.
struct Cost {
    /// The shares of a core, in percent, for the number of locks in the targets: the client's, and those of all servers together.
    client: f64,
    servers: f64,
    scripts: u64,
    /// How many times the servers have read from the client.
    reads: u64,
    busiest: u64,
    longest: Duration,
    usual: Duration,
    /// Of a hold, in the client.
    bytes: f64,
    tasks: usize,
}

impl Cost {
    /// The scripts of the busiest second, beside an even spread.
    fn spread(&self) -> f64 {
        self.busiest as f64 * INTERVAL.as_secs_f64() / self.scripts as f64
    }
}

/// One client holds locks for an interval. It fails if any of them is lost.
async fn renew(bench: &Bench, servers: &[Server], holds: usize) -> Result<Cost> {
    let place = match servers.len() {
        1 => "one server".to_owned(),
        masters => format!("{masters} masters"),
    };
    let progress = |what: &str| {
        let text = format!("watchdog: {holds} locks on {place}, {what}");
        bench.report.progress(&text);
    };
    progress("taking them");
    let mut holder = Holder::start(servers, holds)?;
    let bytes = holder.0.hear().await?.parse()?;
    log_slow_scripts(servers).await?;
    let (before, began) = (Counted::now(&holder, servers).await?, Instant::now());
    let (mut busiest, mut last) = (0, before.scripts);
    for second in 1..=INTERVAL.as_secs() {
        progress(&format!("{second} of {} s", INTERVAL.as_secs()));
        tokio::time::sleep_until(began + Duration::from_secs(second)).await;
        let now = scripts(servers).await?;
        busiest = busiest.max(now - last);
        last = now;
    }
    let (window, after) = (began.elapsed(), Counted::now(&holder, servers).await?);
    // The share for the number of locks in the targets.
    let share = |before: Duration, after: Duration| {
        let share = (after - before).as_secs_f64() / window.as_secs_f64();
        share * 100.0 * 100_000.0 / holds as f64
    };
    let (longest, usual) = slow_scripts(servers).await?;
    Ok(Cost {
        client: share(before.client, after.client),
        servers: share(before.servers, after.servers),
        scripts: last - before.scripts,
        reads: after.reads - before.reads,
        busiest,
        longest,
        usual,
        bytes,
        tasks: holder.tasks().await?,
    })
}

fn on_one_server(bench: &mut Bench, cost: &Cost, holds: usize) -> Result<()> {
    bench.report.row(
        "watchdog, 100,000 holds: % of a client core",
        AtMost(1.5),
        cost.client,
        format!("{} scripts for {holds} holds", cost.scripts),
    );
    bench.report.row(
        "watchdog, 100,000 holds: % of the server",
        AtMost(3.5),
        cost.servers,
        "as the kernel counts it".into(),
    );
    bench.report.row(
        "watchdog: longest script, ms",
        AtMost(1.0),
        cost.longest.as_secs_f64() * 1e3,
        slow(cost),
    );
    bench.report.row(
        "watchdog: busiest second / even spread",
        AtMost(2.0),
        cost.spread(),
        format!("{} scripts in a second", cost.busiest),
    );
    bench.report.row(
        "client bytes a hold",
        AtMost(450.0),
        cost.bytes,
        "live on the heap, the guard among them".into(),
    );
    bench.report.row(
        "tasks per 1,000 holds",
        AtMost(1.0),
        cost.tasks as f64 * 1e3 / holds as f64,
        format!("{} tasks, {} holds", cost.tasks, digits(holds as f64)),
    );
    Ok(())
}

/// The rows have no target: each slot has its own script, so the cost depends on how many of the 16,384 slots have holds.
fn on_three_masters(bench: &mut Bench, cost: &Cost, one: &Cost, holds: usize) {
    let pipelined = cost.scripts as f64 / cost.reads as f64;
    bench.report.fact(
        "watchdog, 100,000 holds on three masters: % of a client core",
        cost.client,
        format!(
            "{} scripts for {holds} holds, {} a read; {} on one server",
            cost.scripts,
            digits(pipelined),
            digits(one.client)
        ),
    );
    bench.report.fact(
        "watchdog, 100,000 holds on three masters: % of all servers together",
        cost.servers,
        format!("{} on one server", digits(one.servers)),
    );
    bench.report.fact(
        "watchdog on three masters: longest script, ms",
        cost.longest.as_secs_f64() * 1e3,
        slow(cost),
    );
    bench.report.fact(
        "watchdog on three masters: busiest second / even spread",
        cost.spread(),
        format!("{} scripts in a second", cost.busiest),
    );
}

fn slow(cost: &Cost) -> String {
    let usual = Time(cost.usual);
    format!("median of those over {}: {usual}", Time(SLOW))
}

/// Another program that holds locks.
struct Holder(Program);

impl Holder {
    fn start(servers: &[Server], holds: usize) -> Result<Self> {
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        let program = std::env::current_exe()?.with_file_name("bench-heap");
        let mut command = Command::new(program);
        let command = command.args(["holds", &urls.join(","), &holds.to_string()]);
        Program::start(command).map(Self)
    }

    /// The number of its tasks.
    async fn tasks(&mut self) -> Result<usize> {
        let answer = self.0.ask("").await?;
        let Some((tasks, "0")) = answer.split_once(' ') else {
            bail!("holds were lost: {answer}");
        };
        Ok(tasks.parse()?)
    }
}

/// What has been counted so far.
struct Counted {
    client: Duration,
    servers: Duration,
    scripts: u64,
    reads: u64,
}

impl Counted {
    async fn now(holder: &Holder, servers: &[Server]) -> Result<Self> {
        let (mut cpu, mut reads) = (Duration::ZERO, 0);
        for server in servers {
            cpu += server.cpu()?;
            reads += server.reads().await?;
        }
        Ok(Self {
            client: holder.0.cpu()?,
            servers: cpu,
            scripts: scripts(servers).await?,
            reads,
        })
    }
}

async fn scripts(servers: &[Server]) -> Result<u64> {
    let mut scripts = 0;
    for server in servers {
        scripts += server.scripts().await?;
    }
    Ok(scripts)
}

async fn log_slow_scripts(servers: &[Server]) -> Result<()> {
    for server in servers {
        let threshold = SLOW.as_micros().to_string();
        for words in [
            ["CONFIG", "SET", "slowlog-log-slower-than", &threshold].as_slice(),
            &["CONFIG", "SET", "slowlog-max-len", "10000"],
            &["SLOWLOG", "RESET"],
        ] {
            server.ask::<()>(words).await?;
        }
    }
    Ok(())
}

/// The longest and the median of the scripts that were slow.
async fn slow_scripts(servers: &[Server]) -> Result<(Duration, Duration)> {
    let mut entries: Vec<Vec<Value>> = Vec::new();
    for server in servers {
        entries.extend(server.ask::<Vec<_>>(&["SLOWLOG", "GET", "10000"]).await?);
    }
    let mut micros: Vec<u64> = Vec::new();
    for entry in &entries {
        let [_, _, Value::Int(time), Value::Array(command), ..] = &entry[..] else {
            bail!("a strange slow log");
        };
        if matches!(command.first(), Some(Value::BulkString(name)) if name.eq_ignore_ascii_case(b"EVALSHA"))
        {
            micros.push(u64::try_from(*time)?);
        }
    }
    micros.sort_unstable();
    let at = |index: usize| Duration::from_micros(micros.get(index).copied().unwrap_or_default());
    Ok((at(micros.len().saturating_sub(1)), at(micros.len() / 2)))
}
