//! Where the instructions of one operation are: a pair on the memory store and on Redis, and a request through the layer.
//!
//! Instructions do not depend on the load of the machine. Needed: `valgrind` (or `VALGRIND=/path/to/one`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::Bench;
use crate::report::Target::AtMost;
use crate::server::Server;

mod callgrind;
mod steps;

use callgrind::{Calls, Profile};

/// The same number for each of 64 tasks.
const OPERATIONS: usize = 64 * 32;

/// An operation of `bench-profile`.
struct Path {
    name: &'static str,
    /// The instructions of one operation, by place.
    instructions: BTreeMap<&'static str, f64>,
    calls: Calls<f64>,
    /// Without a profiler. `None` if it waits for a server.
    nanos: Option<f64>,
}

impl Path {
    fn all(&self) -> f64 {
        self.instructions.values().sum()
    }
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    const ADDED: &str =
        "layer in memory: instructions of a request / those with a layer that boxes";
    if let Err(error) = Command::new(valgrind()).arg("--version").output().await {
        let why = format!("no valgrind: {error}");
        bench.report.missing(ADDED, AtMost(2.0), &why);
        return Ok(());
    }
    let mut paths = Vec::new();
    for name in ["pair", "bare", "box", "layer", "console"] {
        bench.report.progress(&format!("profile of {name}"));
        paths.push(measure(name, None).await?);
    }
    let server = Server::start().await?;
    for name in ["redis", "handles", "reads", "layer-redis"] {
        bench.report.progress(&format!("profile of {name}"));
        paths.push(measure(name, Some(&server)).await?);
    }
    let [
        pair,
        bare,
        boxed,
        layer,
        watched,
        redis,
        handles,
        reads,
        layer_redis,
    ] = &paths[..]
    else {
        unreachable!("nine are measured")
    };
    let report = &mut bench.report;
    report.fact(
        "pair in memory, instructions",
        pair.all(),
        format!("{:.0} ns in one thread", pair.nanos.unwrap_or(f64::NAN)),
    );
    report.fact(
        "pair on Redis, 64 tasks, instructions of the client",
        redis.all(),
        format!(
            "{:.0} for two commands that do nothing, on bare handles",
            handles.all()
        ),
    );
    let what = "layer in memory with a console that is not looked at: instructions of a request";
    let beside = format!("{:.0} more than without", watched.all() - layer.all());
    report.fact(what, watched.all(), beside);
    let what = "layer on Redis: instructions of a request";
    let beside = format!(
        "{:.0} more than without a layer and the two commands on bare handles",
        layer_redis.all() - bare.all() - handles.all()
    );
    report.fact(what, layer_redis.all(), beside);
    let what = "hot read, shared and confirmed, 64 tasks, instructions of the client";
    report.fact(
        what,
        reads.all(),
        "its part of the questions among them".into(),
    );
    let beside = format!(
        "{:.0} against {:.0}; {:.0} without any layer",
        layer.all(),
        boxed.all(),
        bare.all()
    );
    report.row(ADDED, AtMost(2.0), layer.all() / boxed.all(), beside);
    let mut text = String::from(
        "## Where the instructions are\n\n`cargo bench -- profile`: instructions of one operation, as callgrind counts them. The tables of \
         steps have what a function and all that it calls take, without the steps of other rows. The tables of places have each \
         instruction by the place of its source line; their nanoseconds are those of a run without callgrind, divided in the same \
         proportion.\n",
    );
    for table in [
        steps::of_pair(pair),
        steps::of_request(
            "a request through the layer, on the memory store",
            layer,
            boxed,
            bare,
        ),
        steps::of_request(
            "a request through the layer, on Redis, one of 64",
            layer_redis,
            boxed,
            bare,
        ),
        steps::of_read(reads),
        table("a pair on the memory store", pair, None),
        table(
            "a pair on Redis, one of 64 tasks",
            redis,
            Some((
                "of two commands that do nothing, on bare handles without a time limit",
                handles,
            )),
        ),
        table(
            "a request through the layer, on the memory store",
            layer,
            Some(("of that without the layer", bare)),
        ),
        table(
            "a request through the layer, on Redis, one of 64",
            layer_redis,
            Some(("of that without the layer", bare)),
        ),
        table(
            "a hot read, shared and confirmed, one of 64 tasks",
            reads,
            None,
        ),
    ] {
        text += "\n";
        text += &table;
    }
    report.note(&text);
    report.append(&text);
    Ok(())
}

fn valgrind() -> PathBuf {
    std::env::var_os("VALGRIND").map_or_else(|| "valgrind".into(), PathBuf::from)
}

fn program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("bench-profile"))
}

async fn measure(name: &'static str, server: Option<&Server>) -> Result<Path> {
    // First, because a server must get each script once.
    let native = Command::new(program()?)
        .args([name, "20000"])
        .args(server.map(Server::url))
        .output()
        .await?;
    let nanos = String::from_utf8(native.stdout)?;
    let nanos = nanos.trim().parse().context("nanoseconds")?;
    // What the start of the program and the warm-up cost.
    let idle = profile(name, 0, server).await?;
    let busy = profile(name, OPERATIONS, server).await?;
    Ok(Path {
        name,
        instructions: busy.minus(&idle, OPERATIONS),
        calls: busy.calls_minus(&idle, OPERATIONS),
        nanos: server.is_none().then_some(nanos),
    })
}

async fn profile(name: &str, operations: usize, server: Option<&Server>) -> Result<Profile> {
    let file = std::env::temp_dir().join(format!("callgrind.{}.{name}", std::process::id()));
    let output = Command::new(valgrind())
        .arg("--tool=callgrind")
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

fn table(what: &str, path: &Path, beside: Option<(&str, &Path)>) -> String {
    let all = path.all();
    let mut places: Vec<_> = path.instructions.iter().collect();
    places.sort_by(|a, b| b.1.total_cmp(a.1));
    let mut table = format!("| {what} | instructions | share | ns |");
    let line = |table: &mut String, cells: [String; 4]| {
        let _ = write!(table, "\n| {} |", cells.join(" | "));
    };
    line(
        &mut table,
        ["---", "---:", "---:", "---:"].map(str::to_owned),
    );
    let cells = |place: &str, count: f64| {
        let part = count / all;
        [
            place.to_owned(),
            format!("{count:.0}"),
            format!("{:.0} %", part * 100.0),
            path.nanos
                .map_or_else(String::new, |nanos| format!("{:.0}", part * nanos)),
        ]
    };
    for (place, count) in places {
        line(&mut table, cells(place, *count));
    }
    line(&mut table, cells("all", all));
    if let Some((what, other)) = beside {
        line(
            &mut table,
            cells(&format!("{what} (`{}`)", other.name), other.all()),
        );
    }
    table + "\n"
}
