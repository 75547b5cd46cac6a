//! Checks that no combination is missing without a reason.

use std::collections::BTreeSet;
use std::process::Command;

use tower_distributed_lock_testing::conformance::CaseGroup;

// A store that has every case.
use super::memory::{FENCED, GROUPS, LINE, RECORDS};

const STORES: &[&str] = &["memory", "distant", "redis", "cluster", "worked"];
const MODES: &[&str] = &["reentrant", "fair", "read", "write", "permit"];

/// Combinations that a store leaves out, with the reason.
struct Exception {
    cases: Cases,
    store: &'static str,
    modes: &'static [&'static str],
    why: &'static str,
}

enum Cases {
    All,
    Of(&'static [&'static [CaseGroup]]),
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        cases: Cases::All,
        store: "worked",
        modes: &["fair", "read", "write", "permit"],
        why: "it is an example of the smallest store",
    },
    Exception {
        cases: Cases::Of(&[FENCED, LINE, RECORDS]),
        store: "worked",
        modes: MODES,
        why: "it is an example of the smallest store",
    },
];

#[test]
fn every_case_runs_on_every_store_in_every_mode() {
    let generated = tests();
    let cases: BTreeSet<&str> = generated
        .iter()
        .filter_map(|test| test.split("::").nth(1))
        .collect();
    let mut excepted = BTreeSet::new();
    for exception in EXCEPTIONS {
        assert!(!exception.why.is_empty());
        let cases: Vec<&str> = match exception.cases {
            Cases::All => cases.iter().copied().collect(),
            Cases::Of(groups) => groups.iter().flat_map(|groups| cases_of(groups)).collect(),
        };
        for case in cases {
            excepted.extend(combinations(case, &[exception.store], exception.modes));
        }
    }
    for group in [GROUPS, LINE, FENCED, RECORDS].into_iter().flatten() {
        let others = MODES.iter().filter(|mode| !group.modes.contains(mode));
        let others: Vec<_> = others.copied().collect();
        assert!(others.is_empty() || !group.why.is_empty());
        for case in group.cases {
            excepted.extend(combinations(case, STORES, &others));
        }
    }
    let wanted: BTreeSet<String> = cases
        .iter()
        .flat_map(|case| combinations(case, STORES, MODES))
        .collect();
    let missing: Vec<_> = wanted
        .difference(&generated)
        .filter(|test| !excepted.contains(*test))
        .collect();
    assert!(missing.is_empty(), "neither run nor excepted: {missing:#?}");
    let stale: Vec<_> = excepted
        .iter()
        .filter(|test| generated.contains(*test) || !wanted.contains(*test))
        .collect();
    assert!(stale.is_empty(), "excepted, but run or unknown: {stale:#?}");
}

fn cases_of(groups: &[CaseGroup]) -> impl Iterator<Item = &'static str> {
    groups.iter().flat_map(|group| group.cases.iter().copied())
}

fn combinations<'a>(
    case: &'a str,
    stores: &'a [&str],
    modes: &'a [&str],
) -> impl Iterator<Item = String> {
    stores.iter().flat_map(move |store| {
        modes
            .iter()
            .map(move |mode| format!("{store}::{case}::{mode}"))
    })
}

/// The conformance tests of this binary, `<store>::<case>::<mode>`.
fn tests() -> BTreeSet<String> {
    let binary = std::env::current_exe().expect("a test has a binary");
    let listed = Command::new(binary)
        .args(["--list", "--format", "terse"])
        .output();
    let listed =
        String::from_utf8(listed.expect("it lists its tests").stdout).expect("names are text");
    listed
        .lines()
        .filter_map(|line| line.strip_prefix("conformance::")?.strip_suffix(": test"))
        .filter(|test| test.split("::").count() == 3)
        .map(str::to_owned)
        .collect()
}
