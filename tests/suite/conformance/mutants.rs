//! Stores with one flaw each. A case of the suite fails on each of them, and passes on the store without the flaw.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tower_distributed_lock::LockMode;
use tower_distributed_lock_testing::conformance::{Clock, Testbed, cases, run};

use crate::support::{Flaw, Flawed};

const MODES: &[LockMode] = &[LockMode::Reentrant, LockMode::Read, LockMode::Write];

thread_local! {
    /// The flaw of the testbeds that this thread starts.
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

impl Testbed for Flawed {
    type Store = Self;
    const CLOCK: Clock = super::testbeds::PAUSED;

    async fn start() -> Self {
        Self::new(FLAW.get())
    }

    async fn connect(&self) -> Self {
        self.clone()
    }

    async fn leftovers(&self) -> Vec<String> {
        super::testbeds::left(self.store.is_empty())
    }
}

/// Runs a case on a flawed store, and on one without a flaw.
macro_rules! finds {
    ($($mode:ident: $flaw:ident by $file:ident::$case:ident;)+) => {$({
        let on = |flaw| {
            FLAW.set(flaw);
            run::<Flawed>(MODES, LockMode::$mode, cases::$file::$case);
        };
        let found = catch_unwind(AssertUnwindSafe(|| on(Flaw::$flaw))).is_err();
        assert!(found, "{} passes: {:?}", stringify!($case), Flaw::$flaw);
        on(Flaw::None);
    })+};
}

#[test]
fn a_case_fails_on_each_flawed_store() {
    finds! {
        Reentrant: GrantsTwice by exclusion::clients_exclude_each_other;
        Reentrant: HoldsForEver by lease::a_fixed_lease_ends_at_its_time;
        Reentrant: WakesNone by letting_go::a_dropped_guard_releases;
        Reentrant: WithdrawsNothing by cancel::a_cancelled_request_for_a_taken_lock_leaves_nothing;
        Reentrant: RenewsTheLost by loss::a_stolen_hold_is_reported_lost;
        Reentrant: Confirms by loss::the_release_of_a_stolen_hold_is_not_confirmed;
        Reentrant: RefusesACopy by contract::an_attempt_that_is_made_again_is_granted_again;
        Reentrant: KeepsTheFirstLease by contract::an_attempt_that_is_made_again_is_granted_again;
        Reentrant: ForgetsWithdrawals by contract::a_late_copy_of_a_withdrawn_attempt_is_refused;
        Reentrant: Shortens by contract::a_renewal_does_not_shorten_a_lease;
        Reentrant: Resurrects by contract::only_an_attempt_creates_a_hold;
        Reentrant: ReleasesOthers by contract::a_question_about_a_hold_changes_no_other;
        Reentrant: WithdrawsOthers by contract::a_question_about_a_hold_changes_no_other;
        Reentrant: Confuses by contract::several_holds_are_answered_in_their_order;
        Reentrant: ForgetsRecords by contract::a_record_is_there_for_the_next_holder;
        Reentrant: RecordsAlways by contract::a_record_is_there_for_the_next_holder;
        Reentrant: ListensLate by contract::a_subscription_is_active_when_it_is_answered;
        Reentrant: WakesAll by line::a_release_wakes_only_the_first_in_line;
        Write: WakesAll by line::a_release_wakes_only_the_first_in_line;
        Reentrant: HonoursTheDead by line::a_frozen_waiter_in_line_loses_its_place;
        Write: HonoursTheDead by line::a_frozen_waiter_in_line_loses_its_place;
        Reentrant: Barges by line::a_newcomer_does_not_overtake_the_line;
        Write: Barges by line::a_newcomer_does_not_overtake_the_line;
        Reentrant: KeepsListeners by letting_go::a_dropped_guard_releases;
    }
}
