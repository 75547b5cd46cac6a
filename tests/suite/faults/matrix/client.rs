//! Faults of the process that holds or waits, and decisions of the design.

use super::Tests;

pub(super) const TESTS: Tests = &[
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
            "faults::runtimes::releases_begun_on_a_runtime_that_ended_go_on",
            "faults::runtimes::a_guard_that_is_dropped_just_before_its_runtime_ends_is_released",
        ],
    ),
    (
        "client: guard dropped outside a runtime",
        &["conformance::redis::a_guard_dropped_outside_a_runtime_releases::"],
    ),
    (
        "client: blocked executor",
        &[
            "client::busy::busy_workers_keep_their_locks_in_redis",
            "client::busy::busy_workers_keep_their_locks_in_a_quorum",
            "client::busy::a_lock_that_busy_workers_fail_to_renew_is_reported_lost",
        ],
    ),
    (
        "design: attempts die with their connection",
        &[
            "redis_store::connections::faults::a_connection_cut_with_a_command_on_its_way_leaves_it_unanswered",
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
            "redis_store::acl::changes::a_right_that_is_taken_away_while_connected_leaves_no_lock_that_stays_for_ever",
            "redis_store::acl::each_right_is_needed",
        ],
    ),
    (
        "design: a dead connection is answered in milliseconds until a probe finds the store back",
        &[
            "redis_store::connections::faults::while_redis_is_down_calls_fail_at_once_and_when_it_is_back_they_do_not",
            "redis_store::connections::faults::a_server_that_comes_back_is_found_without_a_request",
            "server::faults::a_dead_redis_is_503_at_once_and_comes_back_without_a_restart",
        ],
    ),
];
