//! Checks that no combination is missing without a reason.

use std::collections::BTreeSet;
use std::process::Command;

const STORES: &[&str] = &["memory", "distant", "quorum", "redis", "cluster", "worked"];
const MODES: &[&str] = &["reentrant", "fair", "read", "write", "permit"];

/// All cases.
const EVERY: &[&str] = &[];

const FENCING: &[&str] = &[
    "a_later_grant_has_a_smaller_token",
    "re_entry_changes_the_token",
    "a_token_is_made_up_where_none_was_asked_for",
    "a_reader_is_given_a_token",
];

/// The cases of the line of waiting processes.
const LINE: &[&str] = &[
    "processes_overtake_each_other",
    "a_newcomer_overtakes_the_line",
    "a_release_wakes_the_whole_line",
    "one_that_is_cancelled_keeps_its_place",
    "one_that_is_frozen_keeps_its_place",
];

/// Combinations that are left out, with the reason.
struct Exception {
    cases: &'static [&'static str],
    stores: &'static [&'static str],
    modes: &'static [&'static str],
    why: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        cases: EVERY,
        stores: &["quorum"],
        modes: &["fair"],
        why: "the queues of independent stores do not agree on an order",
    },
    Exception {
        cases: FENCING,
        stores: &["quorum"],
        modes: MODES,
        why: "the counters of independent stores do not agree on an order",
    },
    Exception {
        cases: EVERY,
        stores: &["quorum"],
        modes: &["permit"],
        why: "a majority of three stores with two permits each would grant three",
    },
    Exception {
        cases: EVERY,
        stores: &["worked"],
        modes: &["fair", "read", "write", "permit"],
        why: "it is an example of the smallest store",
    },
    Exception {
        cases: FENCING,
        stores: &["worked"],
        modes: &["reentrant"],
        why: "it is an example of the smallest store",
    },
    Exception {
        cases: LINE,
        stores: &["worked"],
        modes: MODES,
        why: "it is an example of the smallest store",
    },
    Exception {
        cases: &[
            "a_later_grant_has_a_smaller_token",
            "re_entry_changes_the_token",
            "a_token_is_made_up_where_none_was_asked_for",
        ],
        stores: STORES,
        modes: &["read", "permit"],
        why: "readers and permits are not fenced",
    },
    Exception {
        cases: &["a_reader_is_given_a_token"],
        stores: STORES,
        modes: &["reentrant", "fair", "write"],
        why: "they are fenced",
    },
    Exception {
        cases: LINE,
        stores: &["quorum"],
        modes: MODES,
        why: "the lines of independent stores do not agree on an order, and would block each other",
    },
    Exception {
        cases: LINE,
        stores: STORES,
        modes: &["fair", "read"],
        why: "fair waiters have a queue, and readers enter together",
    },
    Exception {
        cases: &["a_stolen_hold_is_handed_over"],
        stores: STORES,
        modes: &["fair", "read", "permit"],
        why: "never handed over: the store serves fair waiters in their order, readers share, and each permit is asked for",
    },
    Exception {
        cases: &[
            "a_minimum_ends_with_its_guard",
            "a_minimum_ends_with_its_client",
        ],
        stores: STORES,
        modes: &["read", "permit"],
        why: "only an exclusive hold has a minimum",
    },
    Exception {
        cases: &["waiters_of_one_client_overtake_each_other"],
        stores: STORES,
        modes: &["read"],
        why: "readers enter together",
    },
    Exception {
        cases: &[
            "clients_overtake_each_other",
            "a_newcomer_overtakes_those_who_wait_elsewhere",
            "a_cancelled_waiter_keeps_its_place",
            "a_frozen_waiter_blocks_the_queue",
        ],
        stores: STORES,
        modes: &["reentrant", "read", "write", "permit"],
        why: "only the fair mode has an order across clients",
    },
    Exception {
        cases: &["every_request_for_any_asks_at_each_release"],
        stores: STORES,
        modes: &["fair"],
        why: "each has to ask for its own place in the store's queue",
    },
    Exception {
        cases: &[
            "readers_keep_each_other_out",
            "a_writer_hands_over_past_waiting_readers",
            "only_some_readers_are_woken_after_a_write",
            "a_reader_starves_among_writers",
            "a_frozen_reader_shuts_writers_out",
            "one_readers_lapse_ends_another",
            "readers_of_one_process_fill_the_store",
        ],
        stores: STORES,
        modes: &["reentrant", "fair", "write", "permit"],
        why: "about readers",
    },
    Exception {
        cases: &[
            "a_newcomer_reads_past_a_waiting_writer",
            "a_cancelled_writer_shuts_readers_out",
            "a_frozen_writer_shuts_readers_out",
            "a_writer_starves_among_readers",
            "an_upgrade_waits_for_itself",
            "a_writer_that_reads_waits_for_itself",
            "a_downgrade_keeps_readers_out",
            "a_nested_read_shortens_the_write",
            "a_nested_read_is_released_by_the_one_before",
            "a_write_is_handed_over_past_its_own_read",
            "an_owner_that_reads_and_writes_at_once_waits_for_itself",
        ],
        stores: STORES,
        modes: &["reentrant", "fair", "read", "permit"],
        why: "about writers",
    },
    Exception {
        cases: &[
            "more_hold_than_there_are_permits",
            "a_permit_stays_unused",
            "one_release_admits_two",
            "one_permits_lapse_ends_another",
            "a_lapsed_permit_is_given_back_twice",
            "two_limits_count_at_once",
            "another_limit_on_several_keys_is_overlooked",
            "a_limit_outlives_its_holds",
            "permits_of_one_process_are_asked_for_one_by_one",
            "a_release_wakes_the_whole_crowd",
            "a_waiter_is_forgotten_when_several_permits_come_free",
            "processes_overtake_each_other_for_a_permit",
        ],
        stores: STORES,
        modes: &["reentrant", "fair", "read", "write"],
        why: "about permits",
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
        let named = exception.cases.iter().copied();
        for case in cases
            .iter()
            .copied()
            .filter(|_| named.len() == 0)
            .chain(named.clone())
        {
            excepted.extend(combinations(case, exception.stores, exception.modes));
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
