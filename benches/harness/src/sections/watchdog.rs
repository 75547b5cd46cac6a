//! The cost of renewals.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::Bench;
use crate::report::Target::AtMost;
use crate::samples::{Time, digits};
use crate::server::{Server, cpu_time};

/// The time in which each hold is renewed once: a third of the default lease.
const INTERVAL: Duration = Duration::from_secs(10);

/// Scripts that take longer than this are reported.
const SLOW: Duration = Duration::from_micros(100);

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let holds: usize = if bench.quick { 20_000 } else { 100_000 };
    bench
        .report
        .progress(&format!("watchdog: taking {holds} locks"));
    let server = Server::start().await?;
    let program = std::env::current_exe()?.with_file_name("bench-heap");
    let mut holder = Command::new(program)
        .args(["holds", server.url(), &holds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = holder.stdin.take().context("stdin is piped")?;
    let mut lines = BufReader::new(holder.stdout.take().context("stdout is piped")?).lines();
    let mut hear = async || {
        let line = timeout(Duration::from_secs(60), lines.next_line()).await??;
        line.context("the holder has ended")
    };
    let bytes: f64 = hear().await?.parse()?;
    let stat = format!(
        "/proc/{}/stat",
        holder.id().context("the holder has ended")?
    );

    server
        .ask::<()>(&[
            "CONFIG",
            "SET",
            "slowlog-log-slower-than",
            &SLOW.as_micros().to_string(),
        ])
        .await?;
    server
        .ask::<()>(&["CONFIG", "SET", "slowlog-max-len", "10000"])
        .await?;
    server.ask::<()>(&["SLOWLOG", "RESET"]).await?;
    let (client, redis, scripts, began) = (
        cpu_time(&stat)?,
        server.cpu()?,
        server.scripts().await?,
        Instant::now(),
    );
    let (mut busiest, mut last) = (0, scripts);
    for second in 1..=INTERVAL.as_secs() {
        bench.report.progress(&format!(
            "watchdog: {holds} locks are held, {second} of {} s",
            INTERVAL.as_secs()
        ));
        tokio::time::sleep_until(began + Duration::from_secs(second)).await;
        let now = server.scripts().await?;
        busiest = busiest.max(now - last);
        last = now;
    }
    let window = began.elapsed().as_secs_f64();
    // The share for the number of locks in the targets.
    let share = |before: Duration, after: Duration| {
        (after - before).as_secs_f64() / window * 100.0 * 100_000.0 / holds as f64
    };
    let (client, redis) = (share(client, cpu_time(&stat)?), share(redis, server.cpu()?));
    let scripts = last - scripts;
    let (longest, usual) = slow_scripts(&server).await?;
    stdin.write_all(b"\n").await?;
    let answer = hear().await?;
    let Some((tasks, "0")) = answer.split_once(' ') else {
        bail!("holds were lost: {answer}");
    };
    let renewals = format!("{scripts} scripts for {holds} holds");
    bench.report.row(
        "watchdog, 100,000 holds: % of a client core",
        AtMost(1.5),
        client,
        renewals,
    );
    bench.report.row(
        "watchdog, 100,000 holds: % of the server",
        AtMost(3.5),
        redis,
        "as the kernel counts it".into(),
    );
    bench.report.row(
        "watchdog: longest script, ms",
        AtMost(1.0),
        longest.as_secs_f64() * 1e3,
        format!("median of those over {}: {}", Time(SLOW), Time(usual)),
    );
    bench.report.row(
        "watchdog: busiest second / even spread",
        AtMost(2.0),
        busiest as f64 * INTERVAL.as_secs_f64() / scripts as f64,
        format!("{busiest} scripts in a second"),
    );
    bench.report.row(
        "client bytes a hold",
        AtMost(400.0),
        bytes,
        "live on the heap, the guard among them".into(),
    );
    bench.report.row(
        "tasks per 1,000 holds",
        AtMost(1.0),
        tasks.parse::<f64>()? * 1e3 / holds as f64,
        format!("{tasks} tasks, {} holds", digits(holds as f64)),
    );
    Ok(())
}

/// The longest and the median of the scripts that were slow.
async fn slow_scripts(server: &Server) -> Result<(Duration, Duration)> {
    let entries: Vec<Vec<Value>> = server.ask(&["SLOWLOG", "GET", "10000"]).await?;
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
