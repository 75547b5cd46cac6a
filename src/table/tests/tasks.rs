//! Requests that are gone when their task acts.

use super::*;
use crate::error::LockError;

/// Two modes wait on one side, and the first request is gone when the store grants its hold.
fn a_grant_that_fits_no_request() {
    let mut world = World::new(Instant::now(), &[]);
    for (n, mode) in [
        (0, LockMode::Reentrant),
        (1, LockMode::Write),
        (2, LockMode::Reentrant),
    ] {
        world.apply(Event::Enters(n, mode));
    }
    world.apply(Event::Refused(0));
    world.apply(Event::Leaves(0));
    let held = world.hold(LockMode::Reentrant);
    world.apply(Event::Leaves(2));
    let is_taken = world.event(|key| key.given(&held, None));
    assert_eq!(is_taken, Some(false), "the request waits for a write");
}

/// The only request that waits fails, and then the task ends: a later one starts another.
fn a_task_without_requests() {
    let mut world = World::new(Instant::now(), &[]);
    world.apply(Event::Enters(0, LockMode::Reentrant));
    world.apply(Event::Refused(0));
    let failed = world.event(|key| key.failed(Side::Exclusive, 0, LockError::Shutdown));
    assert_eq!(failed, Some(()));
    assert!(matches!(world.next(Side::Exclusive), Next::Done));
    assert_eq!(world.table.len(), 0, "the key is not forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_when_the_last_request_has_failed() {
    a_task_without_requests();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_fits_no_request_is_given_back() {
    a_grant_that_fits_no_request();
}

#[cfg(mutants)]
mod mutants {
    use super::*;
    use crate::exploration::{Mutant, is_found};

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_unnoticed_is_found() {
        is_found(Mutant::TaskGone, a_task_without_requests);
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_to_a_request_that_it_does_not_fit_is_found() {
        is_found(Mutant::FitsAnybody, a_grant_that_fits_no_request);
    }
}
