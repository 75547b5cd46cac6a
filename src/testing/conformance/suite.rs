//! The cases of the suite, and the macro that makes tests of them.

/// Cases that belong to some modes, and why the other modes do not have them.
#[doc(hidden)]
#[derive(Debug)]
pub struct CaseGroup {
    /// By their names in the macro.
    pub modes: &'static [&'static str],
    /// Empty if they belong to all modes.
    pub why: &'static str,
    /// By their names.
    pub cases: &'static [&'static str],
}

/// Makes the tests that a store must pass, for the modes that it has. See
/// [`testing::conformance`](mod@crate::testing::conformance).
///
/// The argument is a type that is a [`Testbed`](crate::testing::conformance::Testbed), the modes of its store among `reentrant`,
/// `fair`, `read`, `write`, `permit`, `fenced` if the store issues fencing tokens, and `line` if waiting processes form a line.
/// Each test is called `<case>::<mode>` in the module of the call, which should contain nothing else.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance {
    ($testbed:ty: $($mode:ident)+ $(, $claim:ident)*) => {
        type Tested = $testbed;
        const MODES: &[$crate::LockMode] = &[$($crate::__conformance!(@mode $mode)),+];

        #[test]
        fn the_claim_is_what_the_store_can_do() {
            let claims: &[&str] = &[$(stringify!($claim)),*];
            let claims = |claim: &str| claims.contains(&claim);
            $crate::testing::conformance::claim::<Tested>(MODES, claims("fenced"), claims("line"));
        }

        $crate::__conformance! { @cases GROUPS [$($mode)+]
            [reentrant fair read write permit] "" {
                exclusion: tasks_overlap clients_overlap a_stranger_joins a_late_release_frees_the_next_holder;
                reentry: an_owner_asks_the_store_again an_inner_drop_frees_the_outer an_outer_drop_frees_the_inner
                    an_owner_that_asks_twice_at_once_waits_for_itself a_cancelled_twin_takes_the_other_along
                    an_owner_joins_what_it_has_lost an_owner_is_told_to_upgrade_what_it_has_lost
                    a_share_that_is_gone_lifts_the_limit_of_another;
                waiting: a_request_without_patience_waits a_wait_ends_early_or_late
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
                    a_request_cancelled_as_the_lock_becomes_free_keeps_it
                    a_waiter_that_leaves_the_line_takes_others_along
                    the_front_of_the_line_takes_others_along a_waiter_cancelled_with_its_turn_in_hand_keeps_it;
                crowd: one_of_many_is_forgotten a_lock_never_leaves_a_busy_process one_of_two_busy_processes_gets_all
                    some_wait_on_when_the_lock_is_free;
                several: opposite_orders_wait_for_each_other a_part_is_kept_when_the_rest_is_taken
                    a_key_named_twice_waits_for_itself one_mode_is_taken_for_all_keys an_owner_of_one_waits_for_itself
                    a_lost_key_is_hidden_by_the_others a_cancelled_request_for_several_keeps_some
                    a_free_key_is_kept_while_another_is_waited_for a_request_for_all_starves
                    a_request_names_keys_without_bound;
                any: a_free_segment_is_overlooked a_segment_that_becomes_free_is_overlooked
                    a_request_for_any_swallows_a_turn a_crowd_waits_for_any_without_bound;
                families: two_kinds_of_lock_share_a_key;
                shutdown: a_client_that_ends_keeps_its_locks a_client_that_ends_keeps_its_waiters_waiting
                    a_client_that_has_ended_takes_locks a_lock_is_granted_behind_the_end;
            }
            [reentrant write] "never handed over: the store serves fair waiters in their order, readers share, and each permit is asked for" {
                loss: a_stolen_hold_is_handed_over;
            }
            [reentrant read write permit] "each asks for its own place in the store's queue" {
                any: every_request_for_any_asks_at_each_release;
            }
            [reentrant fair write permit] "readers enter together" {
                order: waiters_of_one_client_overtake_each_other;
            }
            [reentrant fair write] "only an exclusive hold has a minimum" {
                minimum: a_minimum_ends_with_its_guard a_minimum_ends_with_its_client;
            }
            [fair] "only the fair mode has an order across clients" {
                order: clients_overtake_each_other a_newcomer_overtakes_those_who_wait_elsewhere
                    a_cancelled_waiter_keeps_its_place a_frozen_waiter_blocks_the_queue;
            }
            [read] "about readers" {
                phases: readers_keep_each_other_out a_writer_hands_over_past_waiting_readers
                    only_some_readers_are_woken_after_a_write a_reader_starves_among_writers
                    a_frozen_reader_shuts_writers_out
                    one_readers_lapse_ends_another readers_of_one_process_fill_the_store;
            }
            [permit] "about permits" {
                permits: more_hold_than_there_are_permits a_permit_stays_unused one_release_admits_two
                    one_permits_lapse_ends_another a_lapsed_permit_is_given_back_twice two_limits_count_at_once
                    another_limit_on_several_keys_is_overlooked
                    a_limit_outlives_its_holds permits_of_one_process_are_asked_for_one_by_one
                    a_release_wakes_the_whole_crowd a_waiter_is_forgotten_when_several_permits_come_free;
            }
            [write] "about writers" {
                phases: a_newcomer_reads_past_a_waiting_writer a_cancelled_writer_shuts_readers_out
                    a_frozen_writer_shuts_readers_out a_writer_starves_among_readers an_upgrade_waits_for_itself
                    a_writer_that_reads_waits_for_itself a_downgrade_keeps_readers_out a_nested_read_shortens_the_write
                    a_nested_read_is_released_by_the_one_before a_write_is_handed_over_past_its_own_read
                    an_owner_that_reads_and_writes_at_once_waits_for_itself;
            }
        }
        $crate::__conformance! { @also [$($mode)+] $($claim)* }
    };
    (@also $has:tt) => {};
    (@also $has:tt line $($claim:ident)*) => {
        $crate::__conformance! { @cases LINE $has
            [reentrant write permit] "fair waiters have a queue, and readers enter together" {
                line: processes_overtake_each_other a_newcomer_overtakes_the_line a_release_wakes_the_whole_line
                    one_that_is_cancelled_keeps_its_place one_that_is_frozen_keeps_its_place
                    a_lone_task_in_a_loop_gets_all_or_nothing;
            }
            [permit] "about permits" {
                permits: processes_overtake_each_other_for_a_permit;
            }
        }
        $crate::__conformance! { @also $has $($claim)* }
    };
    (@also $has:tt fenced $($claim:ident)*) => {
        $crate::__conformance! { @cases FENCED $has
            [reentrant fair write] "readers and permits are not fenced" {
                fencing: a_later_grant_has_a_smaller_token re_entry_changes_the_token
                    a_token_is_made_up_where_none_was_asked_for;
            }
            [read permit] "they are fenced" {
                fencing: a_reader_is_given_a_token;
            }
        }
        $crate::__conformance! { @also $has $($claim)* }
    };
    (@cases $groups:ident $has:tt $($modes:tt $why:literal { $($file:ident: $($case:ident)+;)+ })+) => {
        #[allow(dead_code)]
        pub(crate) const $groups: &[$crate::testing::conformance::CaseGroup] = &[
            $($crate::testing::conformance::CaseGroup {
                modes: $crate::__conformance!(@names $modes),
                why: $why,
                cases: &[$($(stringify!($case)),+),+],
            }),+
        ];
        $($($($crate::__conformance!(@case $has $modes $file $case);)+)+)+
    };
    (@names [$($mode:ident)+]) => { &[$(stringify!($mode)),+] };
    (@case [$($has:ident)+] $modes:tt $file:ident $case:ident) => {
        mod $case {
            $($crate::__conformance!(@test $has $modes $file $case);)+
        }
    };
    // One test, if the mode of the store is among those of the case.
    (@test reentrant [reentrant $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn reentrant() { $crate::__conformance!(@run reentrant $file $case) }
    };
    (@test fair [fair $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn fair() { $crate::__conformance!(@run fair $file $case) }
    };
    (@test read [read $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn read() { $crate::__conformance!(@run read $file $case) }
    };
    (@test write [write $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn write() { $crate::__conformance!(@run write $file $case) }
    };
    (@test permit [permit $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn permit() { $crate::__conformance!(@run permit $file $case) }
    };
    (@test $mode:ident [$other:ident $($rest:ident)*] $file:ident $case:ident) => {
        $crate::__conformance!(@test $mode [$($rest)*] $file $case);
    };
    (@test $mode:ident [] $file:ident $case:ident) => {};
    (@run $mode:ident $file:ident $case:ident) => {
        $crate::testing::conformance::run::<super::Tested>(
            super::MODES,
            $crate::__conformance!(@mode $mode),
            $crate::testing::conformance::$file::$case,
        )
    };
    (@mode reentrant) => { $crate::LockMode::Reentrant };
    (@mode fair) => { $crate::LockMode::Fair };
    (@mode read) => { $crate::LockMode::Read };
    (@mode write) => { $crate::LockMode::Write };
    (@mode permit) => { $crate::LockMode::permits(1) };
}
