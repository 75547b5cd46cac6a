//! A short run of the torture example on every store.
//!
//! The example fails when a promise was broken, a fault never occurred, or nothing overlapped. On a busy machine it takes
//! longer: it runs until every class of faults has occurred.

use std::collections::BTreeMap;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::simulation::section::{Section, judge};
use crate::support::{Process, eventually, example};

/// The time limit of the example: three times its duration, the last waits, and the expiry of what killed processes have
/// left.
const LIMIT: Duration = Duration::from_secs(300);

/// The first number of every line that has one, by the text before it.
fn figures(report: &str) -> BTreeMap<String, u64> {
    let figure = |line: &str| {
        let (name, rest) = line.split_at_checked(28)?;
        let number = rest.split_whitespace().next()?.parse().ok()?;
        Some((name.trim().to_owned(), number))
    };
    report.lines().filter_map(figure).collect()
}

/// Runs the example: its exit status and its output.
async fn run(arguments: &[&str]) -> (ExitStatus, String) {
    let mut command = Command::new(example("torture"));
    command.args(arguments).args(["--seed", "7"]);
    let mut process = Process::spawn(&mut command).expect(
        "`./scripts/test` builds it, and so does `cargo build --workspace --example torture`",
    );
    let status = eventually("it comes to its end", LIMIT, async || process.ended()).await;
    (status, process.output())
}

/// Asserts that every promise was kept, and returns the figures of the report.
async fn torture(store: &str, seconds: &str) -> BTreeMap<String, u64> {
    let (status, output) = run(&["--store", store, "--seconds", seconds]).await;
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
async fn clients_of_one_memory_store_keep_the_promises() {
    let figures = torture("memory", "8").await;
    assert_eq!(figures["S6"], 0);
    assert!(figures["request late"] > 0);
    assert!(figures["granted, fair"] > 0);
}

#[tokio::test]
async fn clients_of_the_store_on_postgres_keep_the_promises() {
    let figures = torture("postgres", "10").await;
    assert_eq!(figures["S6"], 0);
    assert!(figures["request late"] > 0);
    assert!(figures["granted, fair"] > 0);
}

#[tokio::test]
async fn processes_that_share_a_server_keep_the_promises() {
    let figures = torture("redis", "12").await;
    assert_eq!(figures["S6"], 0);
    assert!(figures["killed"] > 0);
    assert!(figures["granted, write"] > 0);
}

#[tokio::test]
async fn processes_that_share_a_quorum_keep_the_promises() {
    let figures = torture("quorum", "12").await;
    assert!(figures["partition"] > 0);
    assert!(figures["granted, reentrant"] > 0);
}

#[tokio::test]
async fn a_client_that_takes_every_release_for_confirmed_is_found() {
    // Ten seconds sometimes contain no fault that shows it.
    let (status, output) = run(&["--store", "redis", "--seconds", "25", "--gullible"]).await;
    assert_eq!(status.code(), Some(1), "{output}");
    let figures = figures(&output);
    assert!(figures["S5"] + figures["S7"] > 0, "{output}");
    assert_eq!(figures["S1"], 0, "the locks were not to blame: {output}");
}

/// A section from `from` to `to`, confirmed and otherwise correct.
fn section(owner: u64, from: u64, to: u64) -> Section {
    Section {
        key: "key".into(),
        excludes: true,
        permits: None,
        owner,
        asked: from,
        from,
        to,
        held: true,
        confirmed: true,
        token: None,
    }
}

/// The promises that the two sections break, if the store kept its data.
fn broken(one: Section, other: Section) -> Vec<&'static str> {
    let verdict = judge(vec![one, other], |_, _| true);
    verdict
        .broken
        .iter()
        .map(|(promise, ..)| *promise)
        .collect()
}

#[test]
fn sections_that_overlap_break_a_promise() {
    assert_eq!(broken(section(1, 0, 10), section(2, 5, 15)), ["S5", "S1"]);
    assert_eq!(broken(section(1, 0, 20), section(2, 5, 15)), ["S5", "S1"]);
    let unconfirmed = Section {
        confirmed: false,
        ..section(2, 5, 15)
    };
    assert_eq!(broken(section(1, 0, 10), unconfirmed.clone()), ["S1"]);
    let lost = Section {
        held: false,
        ..unconfirmed
    };
    assert!(broken(section(1, 0, 10), lost.clone()).is_empty());
    let verdict = judge(vec![section(1, 0, 10), lost], |_, _| true);
    assert_eq!(verdict.overlaps, 1, "it counts all the same");
    let forgot = judge(vec![section(1, 0, 10), section(2, 5, 15)], |_, _| false);
    assert_eq!(forgot.broken.len(), 1, "S1 holds only while data is kept");
}

#[test]
fn sections_that_may_overlap_break_no_promise() {
    let read = |owner, from, to| Section {
        excludes: false,
        permits: None,
        ..section(owner, from, to)
    };
    assert!(broken(read(1, 0, 10), read(2, 5, 15)).is_empty());
    assert_eq!(broken(read(1, 0, 10), section(2, 5, 15)), ["S7", "S1"]);
    assert!(
        broken(section(1, 0, 10), section(1, 5, 15)).is_empty(),
        "re-entry"
    );
    assert!(broken(section(1, 0, 10), section(2, 10, 15)).is_empty());
    let elsewhere = Section {
        key: "other".into(),
        ..section(2, 5, 15)
    };
    assert!(broken(section(1, 0, 10), elsewhere).is_empty());
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    let with = |token, section| Section {
        token: Some(token),
        ..section
    };
    let [early, late] = [section(1, 0, 10), section(2, 20, 30)];
    assert!(broken(with(1, early.clone()), with(2, late.clone())).is_empty());
    assert_eq!(
        broken(with(2, early.clone()), with(2, late.clone())),
        ["S6"]
    );
    assert_eq!(broken(with(3, early.clone()), with(2, late)), ["S6"]);
    let inner = section(1, 5, 8);
    assert!(
        broken(with(3, early), with(3, inner)).is_empty(),
        "re-entry keeps it"
    );
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
