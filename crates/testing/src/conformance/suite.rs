//! The cases of the suite, and the macro that makes tests of them.

/// Cases that belong to some modes, and why the other modes do not have them.
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
/// [`conformance`](mod@crate::conformance).
///
/// The argument is a type that is a [`Testbed`](crate::conformance::Testbed), the modes of its store among `reentrant`,
/// `fair`, `read`, `write`, `permit`, `fenced` if the store issues fencing tokens, `records` if it keeps records, and `line` if
/// waiting processes form a line.
/// Each test is called `<case>::<mode>` in the module of the call, which should contain nothing else.
#[macro_export]
macro_rules! conformance {
    ($testbed:ty: $($mode:ident)+ $(, $claim:ident)*) => {
        type Tested = $testbed;
        const MODES: &[$crate::tower_distributed_lock::LockMode] = &[$($crate::conformance!(@mode $mode)),+];

        #[test]
        fn the_claim_is_what_the_store_can_do() {
            $crate::conformance::claim::<Tested>(MODES, &[$(stringify!($claim)),*]);
        }

        $crate::conformance! { @cases GROUPS [$($mode)+]
            [reentrant fair read write permit] "" {
                exclusion: tasks_exclude_each_other clients_exclude_each_other another_owner_is_refused
                    a_late_release_does_not_end_the_next_hold;
                reentry: an_owner_reenters_without_asking_the_store the_drop_of_an_inner_guard_keeps_the_lock
                    the_drop_of_the_outer_guard_keeps_the_lock an_owner_that_asks_twice_at_once_is_granted_both
                    a_cancelled_request_does_not_end_others_of_its_owner an_owner_does_not_join_a_lost_hold
                    an_owner_of_a_lost_hold_gets_lost_in_every_mode
                    an_inner_guard_does_not_lengthen_the_longest_hold an_inner_guard_does_not_shorten_the_longest_hold;
                waiting: a_request_that_does_not_wait_is_refused_at_once a_wait_ends_at_its_time_limit
                    a_wait_keeps_its_time_limit_at_the_front_of_the_queue retry_after_is_about_the_rest_of_the_lease
                    the_number_of_waiters_is_bounded a_wait_for_ever_does_not_overflow
                    the_number_of_keys_in_use_is_bounded;
                lease: a_fixed_lease_ends_at_its_time a_renewed_lease_lasts_until_the_release
                    a_holder_loses_its_lock_at_its_longest_hold the_longest_hold_of_one_does_not_end_that_of_another
                    a_short_lease_is_renewed_in_time_among_long_ones a_lease_too_short_to_be_held_is_refused
                    an_early_renewal_does_not_shorten_the_lease;
                loss: a_stolen_hold_is_reported_lost the_release_of_a_stolen_hold_is_not_confirmed
                    a_lost_hold_blocks_no_request the_release_of_a_stolen_shared_hold_is_not_confirmed
                    a_released_lock_is_not_reported_lost a_released_share_is_not_lost_with_the_hold;
                letting_go: a_dropped_guard_releases a_guard_dropped_outside_a_runtime_releases
                    a_panicking_holder_releases a_guard_keeps_its_client_alive;
                cancel: a_cancelled_request_for_a_free_lock_leaves_nothing
                    a_cancelled_request_for_a_taken_lock_leaves_nothing
                    a_request_cancelled_as_the_lock_becomes_free_leaves_it_free
                    a_cancelled_waiter_does_not_end_the_waits_of_others the_next_waiter_asks_when_the_first_is_cancelled
                    a_waiter_cancelled_with_its_turn_passes_it_on;
                crowd: every_request_of_a_crowd_is_granted a_busy_process_leaves_the_lock_to_others
                    each_of_two_busy_processes_gets_its_share each_release_wakes_the_next_waiter;
                several: opposite_orders_do_not_deadlock no_part_is_kept_when_the_rest_is_taken
                    a_key_named_twice_is_taken_once each_key_is_taken_in_its_own_mode an_owner_of_one_key_is_granted_all
                    a_lost_key_among_several_is_reported_lost a_cancelled_request_for_several_leaves_nothing
                    a_free_key_stays_free_while_another_is_waited_for a_key_is_not_held_for_long_while_another_is_waited_for
                    a_request_for_all_is_granted_under_contention
                    the_number_of_keys_of_a_request_is_bounded;
                any: a_request_for_any_gets_a_free_key a_request_for_any_gets_a_key_that_becomes_free
                    a_cancelled_request_for_any_passes_its_turn_on the_number_of_waiters_for_any_is_bounded;
                families: two_kinds_of_lock_on_one_key_conflict;
                contract: an_attempt_that_is_made_again_is_granted_again
                    a_late_copy_of_a_withdrawn_attempt_is_refused a_renewal_does_not_shorten_a_lease
                    only_an_attempt_creates_a_hold a_question_about_a_hold_changes_no_other
                    several_holds_are_answered_in_their_order a_subscription_is_active_when_it_is_answered;
                shutdown: a_client_that_ends_releases_its_locks a_client_that_ends_refuses_its_waiters
                    a_client_that_has_ended_refuses_requests no_hold_is_left_after_the_end;
                unpolled: a_request_that_is_not_polled_delays_no_other a_grant_that_is_not_noticed_goes_to_the_next;
            }
            [reentrant write] "never handed over: the store serves fair waiters in their order, readers share, and each permit is asked for" {
                loss: a_stolen_hold_that_is_handed_over_is_lost a_stolen_hold_blocks_no_waiter_of_its_process;
            }
            [reentrant read write permit] "each asks for its own place in the store's queue" {
                any: few_requests_for_any_ask_at_each_release;
            }
            [reentrant fair write permit] "readers enter together" {
                order: waiters_of_one_client_are_granted_in_order;
            }
            [reentrant fair write] "only an exclusive hold has a minimum" {
                minimum: a_minimum_ends_with_its_guard a_minimum_ends_with_its_client;
            }
            [fair] "only the fair mode has an order across clients" {
                order: clients_are_granted_in_order a_newcomer_does_not_overtake_waiters_elsewhere
                    a_cancelled_waiter_loses_its_place a_frozen_waiter_delays_the_queue_by_seconds
                    a_plain_release_wakes_the_first_in_the_queue;
            }
            [read] "about readers" {
                phases: readers_share_the_lock a_writer_does_not_hand_over_past_waiting_readers
                    every_waiting_reader_is_granted_after_a_write a_reader_is_granted_among_writers
                    a_frozen_reader_blocks_writers_for_seconds one_readers_lapse_ends_no_other
                    readers_of_one_process_share_few_holds;
            }
            [permit] "about permits" {
                permits: no_more_hold_than_there_are_permits every_permit_is_granted one_release_admits_one
                    one_permits_lapse_ends_no_other a_lapsed_permit_is_given_back_once two_limits_at_once_conflict
                    a_refused_request_changes_no_limit
                    another_limit_on_several_keys_is_overlooked a_limit_ends_with_its_holds
                    permits_of_one_process_are_asked_for_at_once few_of_a_crowd_ask_at_a_release
                    every_waiter_is_granted_when_several_permits_come_free;
            }
            [write] "about writers" {
                phases: a_new_reader_waits_behind_a_waiting_writer a_cancelled_writer_blocks_no_readers
                    a_frozen_writer_blocks_readers_for_seconds a_writer_is_granted_among_readers
                    an_upgrade_is_refused_at_once a_writer_reads_under_its_own_write
                    a_write_is_not_handed_over_past_its_own_read
                    an_owner_that_reads_and_writes_at_once_does_not_wait_for_itself;
            }
        }
        $crate::conformance! { @also [$($mode)+] $($claim)* }
    };
    (@also $has:tt) => {};
    (@also $has:tt line $($claim:ident)*) => {
        $crate::conformance! { @cases LINE $has
            [reentrant write permit] "fair waiters have a queue, and readers enter together" {
                line: processes_are_granted_in_order a_newcomer_does_not_overtake_the_line
                    a_release_wakes_only_the_first_in_line a_cancelled_waiter_in_line_loses_its_place
                    a_frozen_waiter_in_line_loses_its_place a_lone_task_in_a_loop_gets_its_turns;
            }
            [permit] "about permits" {
                permits: processes_are_granted_a_permit_in_order;
            }
        }
        $crate::conformance! { @also $has $($claim)* }
    };
    (@also $has:tt fenced $($claim:ident)*) => {
        $crate::conformance! { @cases FENCED $has
            [reentrant fair write] "readers and permits are not fenced" {
                fencing: a_later_grant_has_a_larger_token re_entry_keeps_the_token
                    no_token_is_made_up_for_a_hold_without_one;
            }
            [read permit] "they are fenced" {
                fencing: readers_and_permits_cannot_be_fenced;
            }
        }
        $crate::conformance! { @also $has $($claim)* }
    };
    (@also $has:tt records $($claim:ident)*) => {
        $crate::conformance! { @cases RECORDS $has
            [reentrant fair write] "only an exclusive hold leaves a record" {
                contract: a_record_is_there_for_the_next_holder;
            }
        }
        $crate::conformance! { @also $has $($claim)* }
    };
    (@cases $groups:ident $has:tt $($modes:tt $why:literal { $($file:ident: $($case:ident)+;)+ })+) => {
        #[allow(dead_code)]
        pub(crate) const $groups: &[$crate::conformance::CaseGroup] = &[
            $($crate::conformance::CaseGroup {
                modes: $crate::conformance!(@names $modes),
                why: $why,
                cases: &[$($(stringify!($case)),+),+],
            }),+
        ];
        $($($($crate::conformance!(@case $has $modes $file $case);)+)+)+
    };
    (@names [$($mode:ident)+]) => { &[$(stringify!($mode)),+] };
    (@case [$($has:ident)+] $modes:tt $file:ident $case:ident) => {
        mod $case {
            $($crate::conformance!(@test $has $modes $file $case);)+
        }
    };
    // One test, if the mode of the store is among those of the case.
    (@test reentrant [reentrant $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn reentrant() { $crate::conformance!(@run reentrant $file $case) }
    };
    (@test fair [fair $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn fair() { $crate::conformance!(@run fair $file $case) }
    };
    (@test read [read $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn read() { $crate::conformance!(@run read $file $case) }
    };
    (@test write [write $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn write() { $crate::conformance!(@run write $file $case) }
    };
    (@test permit [permit $($rest:ident)*] $file:ident $case:ident) => {
        #[test] fn permit() { $crate::conformance!(@run permit $file $case) }
    };
    (@test $mode:ident [$other:ident $($rest:ident)*] $file:ident $case:ident) => {
        $crate::conformance!(@test $mode [$($rest)*] $file $case);
    };
    (@test $mode:ident [] $file:ident $case:ident) => {};
    (@run $mode:ident $file:ident $case:ident) => {
        $crate::conformance::run::<super::Tested>(
            super::MODES,
            $crate::conformance!(@mode $mode),
            $crate::conformance::cases::$file::$case,
        )
    };
    (@mode reentrant) => { $crate::tower_distributed_lock::LockMode::Reentrant };
    (@mode fair) => { $crate::tower_distributed_lock::LockMode::Fair };
    (@mode read) => { $crate::tower_distributed_lock::LockMode::Read };
    (@mode write) => { $crate::tower_distributed_lock::LockMode::Write };
    (@mode permit) => { $crate::tower_distributed_lock::LockMode::permits(1) };
}
