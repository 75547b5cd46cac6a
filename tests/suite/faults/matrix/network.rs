//! Faults of the network, and of a Cluster.

use super::Tests;

pub(super) const TESTS: Tests = &[
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
            "faults::network::silent_connections_are_replaced_within_half_of_the_response_time_out",
            "faults::idempotent::a_success_whose_record_is_not_stored_is_not_sent",
            "client::faults::a_lock_whose_store_vanished_is_lost_at_its_deadline_and_not_later",
            "redis_store::connections::faults::a_connection_that_died_silently_is_replaced",
            "redis_store::wakeups::a_connection_that_died_silently_is_noticed",
        ],
    ),
    (
        "network: requests held and delivered late",
        &[
            "faults::network::a_request_delivered_after_its_wait_is_not_granted",
            "redis_store::connections::faults::a_command_without_an_answer_is_unanswered_and_its_late_copy_void",
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
            "cluster::moving::a_subscription_is_over_when_its_slot_has_moved_and_begins_again_where_it_has_gone",
            "cluster::moving::a_waiter_is_woken_where_its_slot_has_gone",
        ],
    ),
];
