//! What every store promises in every mode.
//!
//! A case is a plain `async fn(&Env, LockMode)`, named after the hazard that it guards against. Each runs on every store
//! and in every mode, as the test `conformance::<case>::<store>::<mode>`; [`complete`] fails when one of these tests is
//! missing and no reason is given for that. No case waits for a time where it can wait for a fact, and each ends with the
//! assertion that nothing is left: no key in use in a client, nothing in the store.
//!
//! The stores: `memory` on paused time; `distant`, the same with random delays on the way to it and back;
//! `quorum`, three of those, of which two make a majority; `redis`, a server for each test, in real time and on several
//! threads; `cluster`, the same on a Redis Cluster of three masters that all tests share, under names of their own.

mod apart;
mod env;
mod observed;
mod site;
mod storm;
mod waiter;

mod cancel;
mod complete;
mod crowd;
mod exclusion;
mod families;
mod fencing;
mod lease;
mod letting_go;
mod loss;
mod order;
mod phases;
mod reentry;
mod several;
mod shutdown;
mod waiting;

use tower_distributed_lock::LockMode;

/// What most cases lock.
const KEY: &str = "account:42";

/// Both modes of a family.
fn family(mode: LockMode) -> [LockMode; 2] {
    match mode {
        LockMode::Reentrant | LockMode::Fair => [LockMode::Reentrant, LockMode::Fair],
        LockMode::Read | LockMode::Write => [LockMode::Read, LockMode::Write],
    }
}

/// A mode that a hold in `mode` keeps out.
fn rival(mode: LockMode) -> LockMode {
    match mode {
        LockMode::Read => LockMode::Write,
        LockMode::Write => LockMode::Read,
        other => other,
    }
}

/// Generates the tests of cases, for the modes in which they make sense.
macro_rules! conformance {
    ($($modes:tt => { $($file:ident: $($case:ident)+;)+ })+) => {
        $($($(conformance!(@case $file $case $modes);)+)+)+
    };
    (@case $file:ident $case:ident [$($mode:ident)+]) => {
        mod $case {
            mod memory {
                $(#[test] fn $mode() {
                    crate::conformance::env::on_memory(conformance!(@mode $mode), crate::conformance::$file::$case);
                })+
            }
            mod redis {
                $(#[test] fn $mode() {
                    crate::conformance::env::on_redis(conformance!(@mode $mode), crate::conformance::$file::$case);
                })+
            }
            mod cluster {
                $(#[test] fn $mode() {
                    crate::conformance::env::on_cluster(conformance!(@mode $mode), crate::conformance::$file::$case);
                })+
            }
            conformance!(@quorum $file $case [$($mode)+] []);
            mod distant {
                $(#[test] fn $mode() {
                    crate::conformance::env::on_distant(conformance!(@mode $mode), crate::conformance::$file::$case);
                })+
            }
        }
    };
    // A quorum has neither fencing tokens nor a fair queue.
    (@quorum fencing $case:ident $modes:tt $kept:tt) => {};
    (@quorum $file:ident $case:ident [fair $($rest:ident)*] $kept:tt) => {
        conformance!(@quorum $file $case [$($rest)*] $kept);
    };
    (@quorum $file:ident $case:ident [$mode:ident $($rest:ident)*] [$($kept:ident)*]) => {
        conformance!(@quorum $file $case [$($rest)*] [$($kept)* $mode]);
    };
    (@quorum $file:ident $case:ident [] [$($mode:ident)*]) => {
        mod quorum {
            $(#[test] fn $mode() {
                crate::conformance::env::on_quorum(conformance!(@mode $mode), crate::conformance::$file::$case);
            })*
        }
    };
    (@mode reentrant) => { tower_distributed_lock::LockMode::Reentrant };
    (@mode fair) => { tower_distributed_lock::LockMode::Fair };
    (@mode read) => { tower_distributed_lock::LockMode::Read };
    (@mode write) => { tower_distributed_lock::LockMode::Write };
}

conformance! {
    [reentrant fair read write] => {
        exclusion: tasks_overlap clients_overlap a_stranger_joins a_late_release_frees_the_next_holder;
        reentry: an_owner_asks_the_store_again an_inner_drop_frees_the_outer an_outer_drop_frees_the_inner
            an_owner_that_asks_twice_at_once_waits_for_itself a_cancelled_twin_takes_the_other_along
            an_owner_joins_what_it_has_lost an_owner_is_told_to_upgrade_what_it_has_lost a_share_that_is_gone_lifts_the_limit_of_another;
        waiting: somebody_without_patience_waits a_wait_ends_early_or_late
            a_wait_begins_again_at_the_front_of_the_line the_hint_to_come_back_is_absurd
            a_crowd_waits_without_bound a_wait_for_ever_overflows keys_are_in_use_without_bound;
        lease: a_fixed_lease_outlives_its_time a_renewed_lease_lapses a_wedged_holder_outlives_its_longest_hold
            the_longest_hold_of_one_ends_that_of_another a_short_lease_is_forgotten_among_long_ones
            a_lease_too_short_to_be_held_is_tried
            a_limit_that_is_extended_late_ends_the_hold
            what_was_renewed_for_less_is_believed_to_live_on an_early_renewal_shortens_the_lease;
        loss: a_stolen_hold_goes_unnoticed a_stolen_hold_is_confirmed a_lost_hold_stands_in_the_way
            a_stolen_hold_is_confirmed_because_it_lives_on a_released_lock_is_called_lost
            a_share_that_was_released_is_lost_with_the_hold;
        letting_go: a_dropped_guard_goes_on_holding a_guard_dropped_outside_a_runtime_goes_on_holding
            a_panic_goes_on_holding a_client_takes_its_guards_along;
        cancel: a_cancelled_request_for_a_free_lock_leaves_something
            a_cancelled_request_for_a_taken_lock_leaves_something
            a_request_cancelled_as_the_lock_becomes_free_keeps_it a_waiter_that_leaves_the_line_takes_others_along
            the_front_of_the_line_takes_others_along a_waiter_cancelled_with_its_turn_in_hand_keeps_it;
        crowd: one_of_many_is_forgotten a_lock_never_leaves_a_busy_process one_of_two_busy_processes_gets_all some_wait_on_when_the_lock_is_free;
        several: opposite_orders_wait_for_each_other a_part_is_kept_when_the_rest_is_taken
            a_key_named_twice_waits_for_itself one_mode_is_taken_for_all_keys an_owner_of_one_waits_for_itself
            a_lost_key_is_hidden_by_the_others a_cancelled_request_for_several_keeps_some
            a_free_segment_is_overlooked a_segment_that_becomes_free_is_overlooked a_request_for_any_swallows_a_turn
            a_free_key_is_kept_while_another_is_waited_for a_request_for_all_starves
            a_crowd_waits_for_any_without_bound a_request_names_keys_without_bound;
        families: two_kinds_of_lock_share_a_key;
        shutdown: a_client_that_ends_keeps_its_locks a_client_that_ends_keeps_its_waiters_waiting
            a_client_that_has_ended_takes_locks a_lock_is_granted_behind_the_end;
    }
    [reentrant fair write] => {
        fencing: a_later_grant_has_a_smaller_token re_entry_changes_the_token
            a_token_is_made_up_where_none_was_asked_for;
    }
    [reentrant write] => {
        loss: a_stolen_hold_is_handed_over;
    }
    [reentrant read write] => {
        several: every_request_for_any_asks_at_each_release;
    }
    [reentrant fair write] => {
        order: waiters_of_one_client_overtake_each_other;
    }
    [fair] => {
        order: clients_overtake_each_other a_newcomer_overtakes_those_who_wait_elsewhere
            a_cancelled_waiter_keeps_its_place a_frozen_waiter_blocks_the_queue;
    }
    [read] => {
        phases: readers_keep_each_other_out a_writer_hands_over_past_waiting_readers
            only_some_readers_are_woken_after_a_write a_reader_starves_among_writers a_frozen_reader_shuts_writers_out
            one_readers_lapse_ends_another readers_of_one_process_fill_the_store;
        fencing: a_reader_is_given_a_token;
    }
    [write] => {
        phases: a_newcomer_reads_past_a_waiting_writer a_cancelled_writer_shuts_readers_out
            a_frozen_writer_shuts_readers_out a_writer_starves_among_readers an_upgrade_waits_for_itself
            a_writer_that_reads_waits_for_itself a_downgrade_keeps_readers_out a_nested_read_shortens_the_write
            a_nested_read_is_released_by_the_one_before a_write_is_handed_over_past_its_own_read
            an_owner_that_reads_and_writes_at_once_waits_for_itself;
    }
}
