//! Measures this crate, its limits and its peers. See `benches/README.md`.

mod cluster;
mod contender;
mod cores;
mod crowd;
mod http;
mod load;
mod meter;
mod plot;
mod program;
mod recipe;
mod redisson;
mod report;
mod samples;
mod sections;
mod server;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use report::Report;
use tokio::runtime::Runtime;

/// What stands below the table in RESULTS.md.
const PLOTS: &str = "\n![Sections per second against waiters](throughput.svg)\n\n\
    ![Sections per second, and scripts per section, against processes](fleet.svg)\n";

/// A run, and its number of repetitions.
pub(crate) struct Bench {
    report: Report,
    quick: bool,
}

impl Bench {
    /// `thorough` repetitions, or fewer in a quick run.
    fn repetitions(&self, thorough: usize) -> usize {
        if self.quick {
            thorough.div_ceil(3)
        } else {
            thorough
        }
    }

    /// The time of a repetition, or less in a quick run.
    fn time(&self, thorough: Duration) -> Duration {
        if self.quick { thorough / 4 } else { thorough }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    // A bench that needs several processes starts this program again.
    match words[..] {
        [crowd::MEMBER, contender, url] => Runtime::new()?.block_on(crowd::live(contender, url)),
        [http::CLIENTS, port, connections, millis] => http::live(port, connections, millis),
        _ => Runtime::new()?.block_on(run(arguments)),
    }
}

async fn run(mut arguments: Vec<String>) -> Result<()> {
    // Cargo passes `--bench` to every bench.
    arguments.retain(|argument| argument != "--bench");
    let (options, filters): (Vec<_>, Vec<_>) = arguments
        .iter()
        .cloned()
        .partition(|argument| argument.starts_with("--"));
    let quick = !options.is_empty();
    if let Some(option) = options.iter().find(|option| *option != "--quick") {
        anyhow::bail!(
            "no such option: {option} (there is --quick; other words select sections by name)"
        );
    }
    let mut bench = Bench {
        report: Report::new(),
        quick,
    };
    let chosen: Vec<_> = sections::NAMES
        .into_iter()
        .filter(|name| {
            filters.is_empty() && *name != sections::ON_REQUEST
                || filters.iter().any(|filter| name.contains(filter.as_str()))
        })
        .collect();
    for (index, name) in chosen.iter().enumerate() {
        bench
            .report
            .note(&format!("\n{name} ({} of {})", index + 1, chosen.len()));
        if let Err(error) = sections::run(name, &mut bench).await {
            bench
                .report
                .note(&format!("  THIS SECTION FAILED: {error:#}"));
        }
    }
    let table = bench.report.table();
    println!("\n{table}");
    if quick || !filters.is_empty() {
        return Ok(());
    }
    let text = sections::preamble()? + &table + PLOTS + bench.report.appendix();
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../RESULTS.md");
    Ok(std::fs::write(results, text)?)
}
