//! The list of all faults, and of the tests that cover them.

mod client;
mod data;
mod network;
mod server;

use std::collections::BTreeSet;
use std::process::Command;

/// Every fault that the guarantees name.
const FAULTS: &[&str] = &[
    "server: SIGTERM and restart",
    "server: kill -9 without an append-only file",
    "server: kill -9 with an append-only file",
    "server: FLUSHALL while held",
    "server: DEL while held",
    "server: SCRIPT FLUSH mid-run",
    "server: CLIENT KILL of the command connection",
    "server: CLIENT KILL of the pub/sub connection",
    "server: CLIENT PAUSE WRITE",
    "server: CLIENT PAUSE ALL",
    "server: OOM with noeviction",
    "server: BUSY script",
    "server: LOADING",
    "server: maxclients",
    "server: output-buffer limit on pub/sub",
    "server: clock stepped forward",
    "server: clock stepped back",
    "network: latency and jitter",
    "network: silent partition",
    "network: requests held and delivered late",
    "network: replies held",
    "network: RST",
    "network: half-close",
    "network: idle timeout",
    "cluster: MOVED, ASK and TRYAGAIN during slot migration",
    "cluster: node down",
    "cluster: failover that loses the write",
    "cluster: sharded subscriptions moving",
    "access: missing ACL verbs",
    "access: missing channels",
    "access: wrong password",
    "access: password changed while connected",
    "access: user deleted while connected",
    "access: TLS with wrong CA",
    "data: WRONGTYPE",
    "data: foreign hash without TTL",
    "data: non-numeric count",
    "data: name with braces",
    "client: SIGKILL while holding",
    "client: SIGKILL while waiting",
    "client: SIGKILL while queued",
    "client: SIGSTOP past the lease, then SIGCONT",
    "client: SIGTERM",
    "client: handler panic",
    "client: future dropped at every poll, at once",
    "client: future dropped at every poll, one tick later",
    "client: future dropped at every poll, reply held",
    "client: runtime shutdown while holding",
    "client: runtime shutdown while releasing",
    "client: guard dropped outside a runtime",
    "client: blocked executor",
    "design: attempts die with their connection",
    "design: release works under OOM",
    "design: ACL without pexpire leaves no lock without TTL",
    "design: a dead connection is answered in milliseconds until a probe finds the store back",
];

/// The tests that show for each fault that the promises are kept. A name that ends in `::` stands for all tests that
/// begin with it.
type Tests = &'static [(&'static str, &'static [&'static str])];

const MATRIX: [Tests; 4] = [server::TESTS, network::TESTS, data::TESTS, client::TESTS];

#[test]
fn every_fault_has_a_test_and_every_test_named_here_exists() {
    let matrix = MATRIX.concat();
    let listed: BTreeSet<&str> = matrix.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(listed.len(), matrix.len(), "a fault is listed twice");
    let wanted: BTreeSet<&str> = FAULTS.iter().copied().collect();
    let missing: Vec<_> = wanted.symmetric_difference(&listed).collect();
    assert!(missing.is_empty(), "no fault, or not listed: {missing:#?}");

    let present = tests();
    let mut covering = BTreeSet::new();
    for (fault, tests) in matrix {
        assert!(!tests.is_empty(), "{fault} is covered by nothing");
        for test in tests {
            let found = present.iter().filter(|present| match test.ends_with("::") {
                true => present.starts_with(test),
                false => present == test,
            });
            let found: Vec<_> = found.collect();
            assert!(!found.is_empty(), "{fault}: there is no {test}");
            covering.extend(found);
        }
    }
    let ours =
        |test: &&String| test.starts_with("faults::") && !test.starts_with("faults::matrix::");
    let unlisted: Vec<_> = present
        .iter()
        .filter(ours)
        .filter(|test| !covering.contains(test))
        .collect();
    assert!(unlisted.is_empty(), "they cover no fault: {unlisted:#?}");
}

/// The tests of this binary that run: an ignored one covers nothing.
fn tests() -> BTreeSet<String> {
    let list = |more: &[&str]| {
        let binary = std::env::current_exe().expect("a test has a binary");
        let listed = Command::new(binary)
            .args(["--list", "--format", "terse"])
            .args(more)
            .output();
        let listed = listed.expect("it lists its tests").stdout;
        String::from_utf8(listed).expect("names are text")
    };
    let ignored = list(&["--ignored"]);
    let all = list(&[]);
    all.lines()
        .filter(|line| !ignored.lines().any(|ignored| ignored == *line))
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}
