//! A short torture of every store: the example, run as its users run it.
//!
//! The example ends with an error when a promise was broken, a fault never hit, or nothing overlapped. It takes longer on a
//! machine with too much to do: it goes on until every class of faults has hit.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crate::support::{Process, eventually, example};

/// What the example may take at most: three times its time, the last waits, and the lapse of what the dead have left.
const LIMIT: Duration = Duration::from_secs(300);

/// The first number of every line that has one, by what comes before it.
fn figures(report: &str) -> BTreeMap<String, u64> {
    let figure = |line: &str| {
        let (name, rest) = line.split_at_checked(28)?;
        let number = rest.split_whitespace().next()?.parse().ok()?;
        Some((name.trim().to_owned(), number))
    };
    report.lines().filter_map(figure).collect()
}

/// Runs the example, and returns the figures of its report.
async fn torture(store: &str, seconds: &str) -> BTreeMap<String, u64> {
    let mut command = Command::new(example("torture"));
    command.args(["--store", store, "--seconds", seconds, "--seed", "7"]);
    let mut process = Process::spawn(&mut command).expect("the example was built");
    let status = eventually("it comes to its end", LIMIT, async || process.ended()).await;
    let output = process.output();
    assert!(status.success(), "{status}:\n{output}");
    let figures = figures(&output);
    assert!(figures["confirmed"] > 0, "{output}");
    assert!(figures["raw overlaps"] > 0, "{output}");
    for promise in ["S1", "S5", "S7", "L4", "L6", "L8", "L9"] {
        assert_eq!(figures[promise], 0, "{output}");
    }
    figures
}

#[tokio::test]
async fn clients_of_one_memory_store_are_tortured() {
    let figures = torture("memory", "8").await;
    assert_eq!(figures["S6"], 0);
    assert!(figures["request late"] > 0);
    assert!(figures["granted, fair"] > 0);
}

#[tokio::test]
async fn processes_that_share_a_server_are_tortured() {
    let figures = torture("redis", "12").await;
    assert_eq!(figures["S6"], 0);
    assert!(figures["killed"] > 0);
    assert!(figures["granted, write"] > 0);
}

#[tokio::test]
async fn processes_that_share_a_quorum_are_tortured() {
    let figures = torture("quorum", "12").await;
    assert!(figures["partition"] > 0);
    assert!(figures["granted, reentrant"] > 0);
}

#[test]
fn figures_are_found_in_a_report() {
    let report = "\
operations                      66321
  granted, read                 12345  longest wait 12 ms
fault                          struck       hit  a hit is when
CLIENT KILL                        25        24  connections ended
";
    let figures = figures(report);
    assert_eq!(figures["operations"], 66321);
    assert_eq!(figures["granted, read"], 12345);
    assert_eq!(figures["CLIENT KILL"], 25);
    assert_eq!(figures.len(), 3);
}
