//! The scenarios of a crowd find the mutants.

use super::*;
use crate::exploration::Mutant;

#[test]
fn a_silent_release_is_found_with_a_store_that_answers_at_once() {
    let plan = Plan {
        clients: 2,
        callers: 2,
        at_once: true,
        ..QUIET
    };
    plan.finds(Mutant::WakesNone);
}

#[test]
fn a_cancelled_waiter_that_keeps_its_grant_is_found() {
    let plan = Plan {
        cancels: true,
        ..QUIET
    };
    plan.finds(Mutant::GiftKept);
}

#[test]
fn a_hold_that_is_passed_on_when_nearly_over_is_found() {
    let plan = Plan {
        naps: true,
        ..QUIET
    };
    plan.finds(Mutant::LostPassedOn);
}

#[test]
fn a_newcomer_at_the_front_of_the_queue_is_found() {
    QUIET.finds(Mutant::LastInFirstOut);
}

#[test]
fn a_token_that_is_given_twice_is_found() {
    QUIET.finds(Mutant::TokenKept);
}

#[test]
fn a_forgotten_request_of_an_owner_is_found() {
    let plan = Plan {
        callers: 3,
        owners: true,
        ..QUIET
    };
    plan.finds(Mutant::SiblingForgotten);
}
