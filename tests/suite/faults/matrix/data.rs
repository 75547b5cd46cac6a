//! Rights that are missing, and data that is no lock.

use super::Tests;

pub(super) const TESTS: Tests = &[
    (
        "access: missing ACL verbs",
        &[
            "redis_store::acl::a_user_who_lacks_a_right_takes_no_lock",
            "redis_store::acl::changes::a_right_that_is_taken_away_while_connected_leaves_no_lock_that_stays_for_ever",
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
            "client::busy::a_hold_is_kept_when_the_password_is_changed",
            "faults::connections::a_password_changed_while_connected_refuses_at_once_until_it_is_restored",
        ],
    ),
    (
        "access: user deleted while connected",
        &["redis_store::acl::changes::a_deleted_user_is_refused_until_it_is_there_again"],
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
];
