//! Where the instructions of one operation are: a pair on the memory store, and a request through the layer.
//!
//! Instructions do not depend on the load of the machine. Needed: `valgrind` (or `VALGRIND=/path/to/one`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::Bench;
use crate::report::Target::AtMost;

mod callgrind;

use callgrind::Profile;

const OPERATIONS: usize = 2_000;

/// An operation of `bench-profile`.
struct Path {
    name: &'static str,
    /// The instructions of one operation, by place.
    instructions: BTreeMap<&'static str, f64>,
    /// Without a profiler.
    nanos: f64,
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
    for name in ["pair", "bare", "box", "layer"] {
        bench.report.progress(&format!("profile of {name}"));
        paths.push(measure(name).await?);
    }
    let [pair, bare, boxed, layer] = &paths[..] else {
        unreachable!("four are measured")
    };
    let report = &mut bench.report;
    report.fact(
        "pair in memory, instructions",
        pair.all(),
        format!("{:.0} ns in one thread", pair.nanos),
    );
    let beside = format!(
        "{:.0} against {:.0}; {:.0} without any layer",
        layer.all(),
        boxed.all(),
        bare.all()
    );
    report.row(ADDED, AtMost(2.0), layer.all() / boxed.all(), beside);
    let text = format!(
        "## Where the instructions are\n\n`cargo bench -- profile`: instructions of one operation on the memory store, as callgrind counts \
         them, by the place of the source line; the nanoseconds are those of a run without it, divided in the same \
         proportion.\n\n{}\n{}",
        table("a pair of acquire and release", pair, None),
        table("a request through the layer", layer, Some(bare)),
    );
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

async fn measure(name: &'static str) -> Result<Path> {
    // What the start of the program and the warm-up cost.
    let idle = profile(name, 0).await?;
    let busy = profile(name, OPERATIONS).await?;
    let native = Command::new(program()?)
        .args([name, "20000"])
        .output()
        .await?;
    let nanos = String::from_utf8(native.stdout)?;
    Ok(Path {
        name,
        instructions: busy.minus(&idle, OPERATIONS),
        nanos: nanos.trim().parse().context("nanoseconds")?,
    })
}

async fn profile(name: &str, operations: usize) -> Result<Profile> {
    let file = std::env::temp_dir().join(format!("callgrind.{}.{name}", std::process::id()));
    let output = Command::new(valgrind())
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program()?)
        .args([name, &operations.to_string()])
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "callgrind failed: {said}");
    let text = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    Profile::parse(&text)
}

fn table(what: &str, path: &Path, without: Option<&Path>) -> String {
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
            format!("{:.0}", part * path.nanos),
        ]
    };
    for (place, count) in places {
        line(&mut table, cells(place, *count));
    }
    line(&mut table, cells("all", all));
    if let Some(without) = without {
        line(
            &mut table,
            cells(
                &format!("of that without the layer (`{}`)", without.name),
                without.all(),
            ),
        );
    }
    table + "\n"
}
