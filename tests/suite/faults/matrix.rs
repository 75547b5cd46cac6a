//! The list of all faults, and of the tests that cover them.

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
const MATRIX: &[(&str, &[&str])] = &[
    (
        "server: SIGTERM and restart",
        &[
            "faults::outages::a_terminated_server_confirms_nothing_and_every_waiter_is_answered",
            "client::faults::a_restart_loses_what_is_held_and_the_next_acquisition_works",
        ],
    ),
    (
        "server: kill -9 without an append-only file",
        &[
            "faults::outages::a_killed_server_without_persistence_loses_locks_and_confirms_no_release",
            "faults::idempotent::a_claim_lost_in_a_crash_is_not_confirmed_and_its_repetition_is",
        ],
    ),
    (
        "server: kill -9 with an append-only file",
        &[
            "faults::outages::a_killed_server_with_an_append_only_file_keeps_locks_and_confirms_them",
        ],
    ),
    (
        "server: FLUSHALL while held",
        &[
            "faults::wiped::a_flush_takes_every_lock_and_the_waiters_notice_by_themselves",
            "server::faults::a_stolen_lock_is_500_and_never_the_handlers_answer",
        ],
    ),
    (
        "server: DEL while held",
        &[
            "faults::wiped::a_flush_takes_every_lock_and_the_waiters_notice_by_themselves",
            "conformance::redis::a_stolen_hold_is_reported_lost::",
            "conformance::redis::the_release_of_a_stolen_hold_is_not_confirmed::",
            "conformance::redis::a_stolen_hold_that_is_handed_over_is_lost::",
        ],
    ),
    (
        "server: SCRIPT FLUSH mid-run",
        &[
            "faults::wiped::scripts_forgotten_in_the_middle_of_the_work_are_sent_again",
            "redis_store::connections::a_script_that_the_server_forgot_is_sent_again_in_full",
        ],
    ),
    (
        "server: CLIENT KILL of the command connection",
        &[
            "faults::connections::commands_killed_with_their_connection_are_sent_again",
            "redis_store::connections::connections_killed_while_idle_are_replaced_without_an_error",
        ],
    ),
    (
        "server: CLIENT KILL of the pub/sub connection",
        &["redis_store::wakeups::a_killed_connection_subscribes_again_and_wakes_every_listener"],
    ),
    (
        "server: CLIENT PAUSE WRITE",
        &[
            "faults::stalled::a_paused_server_serves_long_waits_fails_short_ones_and_confirms_no_lapsed_hold",
        ],
    ),
    (
        "server: CLIENT PAUSE ALL",
        &[
            "faults::stalled::a_paused_server_serves_long_waits_fails_short_ones_and_confirms_no_lapsed_hold",
            "server::faults::a_hanging_redis_does_not_outlast_the_wait",
        ],
    ),
    (
        "server: OOM with noeviction",
        &["faults::full::a_full_server_refuses_at_once_and_still_renews_and_releases"],
    ),
    (
        "server: BUSY script",
        &["faults::stalled::a_busy_server_is_waited_for_and_loses_nothing"],
    ),
    (
        "server: LOADING",
        &["faults::outages::a_server_that_is_loading_is_waited_for_and_keeps_what_it_loads"],
    ),
    (
        "server: maxclients",
        &["faults::outages::a_server_at_its_connection_limit_fails_waits_and_loses_no_lock"],
    ),
    (
        "server: output-buffer limit on pub/sub",
        &["faults::connections::a_subscriber_that_is_cut_off_for_its_backlog_misses_no_wake_up"],
    ),
    (
        "server: clock stepped forward",
        &[
            "faults::clock::an_audit_shows_how_far_the_clock_was_stepped",
            "faults::clock::a_clock_put_forward_ends_every_lease_and_no_release_is_confirmed",
        ],
    ),
    (
        "server: clock stepped back",
        &["faults::clock::a_clock_put_back_keeps_what_is_held_and_tokens_rising"],
    ),
    (
        "network: latency and jitter",
        &["faults::network::holders_never_overlap_on_a_slow_and_uneven_network"],
    ),
    (
        "network: silent partition",
        &[
            "faults::network::a_holder_behind_a_partition_loses_its_lock_before_another_is_granted",
            "faults::network::a_wake_up_that_the_network_keeps_costs_no_more_than_a_poll",
            "faults::network::silent_connections_are_replaced_before_a_command_times_out",
            "faults::idempotent::a_success_whose_record_is_not_stored_is_not_sent",
            "client::faults::a_lock_whose_store_vanished_is_lost_at_its_deadline_and_not_later",
            "redis_store::connections::a_connection_that_died_silently_is_replaced",
            "redis_store::wakeups::a_connection_that_died_silently_is_noticed",
        ],
    ),
    (
        "network: requests held and delivered late",
        &[
            "faults::network::a_request_delivered_after_its_wait_is_not_granted",
            "redis_store::connections::a_command_without_an_answer_is_unanswered_and_its_late_copy_void",
        ],
    ),
    (
        "network: replies held",
        &[
            "faults::network::a_connection_that_ends_with_a_grant_on_it_leaves_no_lock",
            "faults::network::a_connection_that_ends_with_several_grants_on_it_leaves_none",
            "faults::idempotent::a_record_whose_acknowledgement_is_lost_is_replayed",
            "client::cancelled::an_acquisition_dropped_with_its_reply_on_the_way_leaves_nothing",
            "client::faults::a_release_without_an_answer_is_not_confirmed",
        ],
    ),
    (
        "network: RST",
        &[
            "faults::network::a_connection_that_ends_with_a_grant_on_it_leaves_no_lock",
            "faults::network::a_connection_that_ends_with_several_grants_on_it_leaves_none",
            "redis_store::wakeups::a_cut_connection_subscribes_again_and_wakes_every_listener",
        ],
    ),
    (
        "network: half-close",
        &["faults::network::a_connection_that_ends_with_a_grant_on_it_leaves_no_lock"],
    ),
    (
        "network: idle timeout",
        &["faults::connections::a_server_that_ends_idle_connections_fails_no_request"],
    ),
    (
        "cluster: MOVED, ASK and TRYAGAIN during slot migration",
        &["cluster::moving::"],
    ),
    (
        "cluster: node down",
        &[
            "cluster::failing::a_server_dies_and_its_replica_takes_over",
            "cluster::failing::a_server_hangs_and_its_replica_takes_over",
        ],
    ),
    (
        "cluster: failover that loses the write",
        &[
            "cluster::failing::a_hold_that_a_failover_forgets_is_reported_lost",
            "cluster::failing::a_request_whose_hold_a_failover_forgets_is_500",
        ],
    ),
    (
        "cluster: sharded subscriptions moving",
        &[
            "cluster::moving::a_listener_goes_with_its_slot_and_is_woken_when_it_has_arrived",
            "cluster::moving::a_waiter_is_woken_where_its_slot_has_gone",
        ],
    ),
    (
        "access: missing ACL verbs",
        &[
            "redis_store::acl::a_user_who_lacks_a_right_takes_no_lock",
            "redis_store::acl::a_right_that_is_taken_away_while_connected_leaves_no_lock_that_stays_for_ever",
            "redis_store::acl::each_right_is_needed",
        ],
    ),
    (
        "access: missing channels",
        &[
            "redis_store::wakeups::a_channel_that_is_not_allowed_is_refused_and_others_are_not_disturbed",
        ],
    ),
    (
        "access: wrong password",
        &[
            "redis_store::connections::connecting_fails_fast_and_says_why",
            "faults::connections::a_password_changed_while_connected_refuses_at_once_until_it_is_restored",
        ],
    ),
    (
        "access: password changed while connected",
        &[
            "faults::connections::a_password_changed_while_connected_refuses_at_once_until_it_is_restored",
        ],
    ),
    (
        "access: user deleted while connected",
        &["redis_store::acl::a_deleted_user_is_refused_until_it_is_there_again"],
    ),
    (
        "access: TLS with wrong CA",
        &["redis_store::tls::a_server_of_a_strange_authority_is_refused"],
    ),
    (
        "data: WRONGTYPE",
        &[
            "faults::foreign::something_that_is_no_lock_is_a_conflict_at_once_and_stays",
            "faults::foreign::a_lock_overwritten_while_it_is_waited_for_ends_the_wait",
            "redis_store::holds::something_else_under_the_key_is_a_conflict_and_stays_untouched",
        ],
    ),
    (
        "data: foreign hash without TTL",
        &[
            "faults::foreign::something_that_is_no_lock_is_a_conflict_at_once_and_stays",
            "faults::foreign::a_lock_overwritten_while_it_is_waited_for_ends_the_wait",
            "faults::foreign::a_lock_without_an_expiry_gets_one_by_its_renewal",
        ],
    ),
    (
        "data: non-numeric count",
        &[
            "faults::foreign::a_count_that_is_no_number_is_waited_for_like_any_other",
            "redis_store::fencing::a_counter_that_is_no_number_is_a_conflict_and_grants_nothing",
        ],
    ),
    (
        "data: name with braces",
        &["faults::foreign::names_with_braces_are_locks_like_any_other"],
    ),
    (
        "client: SIGKILL while holding",
        &[
            "client::faults::a_killed_process_frees_its_locks_within_their_lease",
            "server::faults::a_killed_holder_is_free_within_its_lease",
        ],
    ),
    (
        "client: SIGKILL while waiting",
        &[
            "faults::processes::a_process_killed_while_it_waits_or_queues_delays_the_others_by_seconds",
        ],
    ),
    (
        "client: SIGKILL while queued",
        &[
            "faults::processes::a_process_killed_while_it_waits_or_queues_delays_the_others_by_seconds",
        ],
    ),
    (
        "client: SIGSTOP past the lease, then SIGCONT",
        &[
            "faults::processes::a_process_stopped_past_its_lease_finds_its_lock_lost",
            "faults::processes::a_process_stopped_for_less_than_its_lease_keeps_its_lock",
            "server::faults::a_server_paused_past_its_lease_does_not_answer_as_if_it_had_not_been",
        ],
    ),
    (
        "client: SIGTERM",
        &[
            "faults::processes::a_terminated_process_frees_its_lock_within_its_lease",
            "server::faults::a_request_outlives_many_leases_and_a_stop_finishes_it",
        ],
    ),
    (
        "client: handler panic",
        &[
            "layer::cancel::a_panic_releases",
            "conformance::redis::a_panicking_holder_releases::",
        ],
    ),
    (
        "client: future dropped at every poll, at once",
        &[
            "conformance::redis::a_cancelled_request_for_a_free_lock_leaves_nothing::",
            "conformance::redis::a_cancelled_request_for_a_taken_lock_leaves_nothing::",
        ],
    ),
    (
        "client: future dropped at every poll, one tick later",
        &[
            "conformance::redis::a_cancelled_request_for_a_free_lock_leaves_nothing::",
            "conformance::redis::a_cancelled_request_for_a_taken_lock_leaves_nothing::",
        ],
    ),
    (
        "client: future dropped at every poll, reply held",
        &[
            "faults::dropped::an_acquisition_dropped_at_any_poll_while_its_answer_is_held_leaves_nothing",
            "faults::dropped::a_release_dropped_at_any_poll_while_its_answer_is_held_goes_on",
        ],
    ),
    (
        "client: runtime shutdown while holding",
        &[
            "faults::runtimes::a_runtime_that_ends_while_its_tasks_hold_frees_their_locks",
            "faults::runtimes::a_runtime_that_ends_does_not_end_the_renewals_of_another",
        ],
    ),
    (
        "client: runtime shutdown while releasing",
        &[
            "faults::runtimes::a_release_that_ends_with_its_runtime_is_answered",
            "faults::runtimes::a_release_begun_on_a_runtime_that_ended_harms_no_other_lock",
        ],
    ),
    (
        "client: guard dropped outside a runtime",
        &["client::cancelled::a_guard_dropped_outside_any_runtime_releases"],
    ),
    (
        "client: blocked executor",
        &[
            "client::busy::busy_workers_keep_their_locks_in_redis",
            "client::busy::busy_workers_keep_their_locks_in_a_quorum",
            "client::busy::a_lock_in_memory_that_busy_workers_lose_is_reported_lost",
        ],
    ),
    (
        "design: attempts die with their connection",
        &[
            "redis_store::connections::a_connection_cut_with_a_command_on_its_way_leaves_it_unanswered",
            "faults::network::a_connection_that_ends_with_a_grant_on_it_leaves_no_lock",
            "faults::network::a_connection_that_ends_with_several_grants_on_it_leaves_none",
        ],
    ),
    (
        "design: release works under OOM",
        &["redis_store::holds::a_full_server_refuses_acquisitions_and_still_releases"],
    ),
    (
        "design: ACL without pexpire leaves no lock without TTL",
        &[
            "redis_store::acl::a_user_who_lacks_a_right_takes_no_lock",
            "redis_store::acl::a_right_that_is_taken_away_while_connected_leaves_no_lock_that_stays_for_ever",
            "redis_store::acl::each_right_is_needed",
        ],
    ),
    (
        "design: a dead connection is answered in milliseconds until a probe finds the store back",
        &[
            "redis_store::connections::while_redis_is_down_calls_fail_at_once_and_when_it_is_back_they_do_not",
            "redis_store::connections::a_server_that_comes_back_is_found_without_a_request",
            "server::faults::a_dead_redis_is_503_at_once_and_comes_back_without_a_restart",
        ],
    ),
];

#[test]
fn every_fault_has_a_test_and_every_test_named_here_exists() {
    let listed: BTreeSet<&str> = MATRIX.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(listed.len(), MATRIX.len(), "a fault is listed twice");
    let wanted: BTreeSet<&str> = FAULTS.iter().copied().collect();
    let missing: Vec<_> = wanted.symmetric_difference(&listed).collect();
    assert!(missing.is_empty(), "no fault, or not listed: {missing:#?}");

    let present = tests();
    let mut covering = BTreeSet::new();
    for (fault, tests) in MATRIX {
        assert!(!tests.is_empty(), "{fault} is covered by nothing");
        for test in *tests {
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
