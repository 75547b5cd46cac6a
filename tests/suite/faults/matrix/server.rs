//! Faults of a server.

use super::Tests;

pub(super) const TESTS: Tests = &[
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
            "redis_store::connections::faults::connections_killed_while_idle_are_replaced_without_an_error",
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
        &[
            "faults::outages::a_server_at_its_connection_limit_fails_waits_and_loses_no_lock",
            "faults::outages::a_server_with_a_password_at_its_connection_limit_fails_waits_and_loses_no_lock",
        ],
    ),
    (
        "server: output-buffer limit on pub/sub",
        &["faults::connections::a_subscriber_that_is_cut_off_for_its_backlog_misses_no_wake_up"],
    ),
    (
        "server: clock stepped forward",
        &[
            "faults::clock::an_audit_shows_how_far_the_clock_was_stepped",
            "faults::clock::an_audit_shows_a_replica_whose_clock_is_ahead_of_its_masters",
            "faults::clock::a_clock_put_forward_ends_every_lease_and_no_release_is_confirmed",
        ],
    ),
    (
        "server: clock stepped back",
        &["faults::clock::a_clock_put_back_keeps_what_is_held_and_tokens_rising"],
    ),
];
