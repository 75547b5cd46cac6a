//! Where the instructions of one operation are: a pair on the memory store and on Redis, and a request through the layer.
//!
//! Instructions do not depend on the load of the machine. Needed: `valgrind` (or `VALGRIND=/path/to/one`).

use std::fmt::Write;

use anyhow::Result;
use tokio::process::Command;

use crate::Bench;
use crate::report::Target::AtMost;
use crate::server::Server;

mod callgrind;
mod path;
mod steps;

use path::{IN_MEMORY, Path, Times, measure, times, valgrind};

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    const ADDED: &str =
        "layer in memory: instructions of a request / those with a layer that boxes";
    if let Err(error) = Command::new(valgrind()).arg("--version").output().await {
        let why = format!("no valgrind: {error}");
        bench.report.missing(ADDED, AtMost(2.2), &why);
        return Ok(());
    }
    let mut paths = Vec::new();
    for (name, times) in IN_MEMORY.into_iter().zip(times(bench).await?) {
        bench.report.progress(&format!("profile of {name}"));
        let path = measure(name, None).await?;
        let times = Some(times);
        paths.push(Path { times, ..path });
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
        pair.times.map_or_else(String::new, |times| {
            format!("{:.0} ns in one thread", times.warm)
        }),
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
    report.row(ADDED, AtMost(2.2), layer.all() / boxed.all(), beside);
    let mut text = String::from(
        "## Where the instructions are\n\n`cargo bench -- profile`: instructions of one operation, as callgrind counts them. The tables of \
         steps have what a function and all that it calls take, without the steps of other rows. The tables of places have each \
         instruction by the place of its source line; their nanoseconds are those of a run without callgrind, divided in the same \
         proportion.\n\nMisses are those of a simulated processor with a cache of 32 KiB for code and one of 32 KiB for data, and a plain \
         prediction of branches, in a loop that does nothing else. The nanoseconds of that loop are beside those with cold \
         caches: before each operation messages go through the kernel, and a MiB of other memory is read.\n",
    );
    for table in [
        misses(&paths),
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

/// What an operation loses besides its instructions.
fn misses(paths: &[Path]) -> String {
    let mut table = String::from(
        "| an operation | instructions | misses for code | misses for data | branches predicted wrong | ns | ns, cold caches |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (name, what) in [
        ("bare", "a request without a layer"),
        ("box", "a request through a layer that boxes"),
        ("layer", "a request through the layer, on the memory store"),
        (
            "layer-redis",
            "a request through the layer, on Redis, one of 64",
        ),
        ("pair", "a pair on the memory store"),
        ("redis", "a pair on Redis, one of 64 tasks"),
        ("handles", "two commands that do nothing, on bare handles"),
        ("reads", "a hot read, shared and confirmed, one of 64 tasks"),
    ] {
        let path = paths.iter().find(|path| path.name == name);
        let path = path.expect("each is measured");
        let count = |names: &[&str]| -> f64 {
            let counts = names.iter().filter_map(|name| path.events.get(*name));
            counts.sum()
        };
        let [code, data, branches] = [&["I1mr"][..], &["D1mr", "D1mw"], &["Bcm", "Bim"]].map(count);
        let _ = writeln!(
            table,
            "| {what} | {:.0} | {code:.0} | {data:.0} | {branches:.0} | {} | {} |",
            path.all(),
            nanos(path, |times| times.warm),
            nanos(path, |times| times.cold),
        );
    }
    table
}

/// A cell of a table.
fn nanos(path: &Path, of: impl FnOnce(Times) -> f64) -> String {
    let times = path.times.map(of);
    times.map_or_else(String::new, |nanos| format!("{nanos:.0}"))
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
            nanos(path, |times| part * times.warm),
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
