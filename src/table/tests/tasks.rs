//! Requests that are gone when their task acts.

use super::*;
use crate::error::LockError;
use crate::lock::Owner;

/// Two modes wait on one side, and the first request is gone when the store grants its hold.
fn a_grant_that_fits_no_request() {
    let mut world = World::new(Instant::now());
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

/// The only request that waits fails, and then the task ends, while another request holds the key. A later one starts another task.
fn a_task_without_requests() {
    let mut world = World::new(Instant::now());
    world.apply(Event::Enters(0, LockMode::Reentrant));
    world.apply(Event::Granted(0));
    world.apply(Event::Enters(1, LockMode::Reentrant));
    let failed = world.event(|key| key.failed(Side::Exclusive, 1, LockError::Shutdown));
    assert_eq!(failed, Some(()));
    assert!(matches!(world.next(Side::Exclusive), Next::Done));
    let mut slot = None;
    let later = terms(LockMode::Reentrant);
    let entered = world.entry(|key| key.enter(2, &later, &mut slot));
    assert!(
        matches!(entered, Ok(Entered::Wait { start: Some(_) })),
        "it waits for a task that has ended: {entered:?}"
    );
}

/// A request leaves while the task asks for it. The next one finds no line, and asks the store itself, which the task's question
/// precedes. Its grant goes to the one that waits: to release it would leave the key idle. The one that asks is the next.
#[tokio::test(start_paused = true)]
async fn a_grant_for_a_request_that_is_gone_goes_to_one_that_waits_behind_one_that_asks() {
    let mut world = World::new(Instant::now());
    let write = LockMode::Write;
    for event in [
        Event::Enters(0, write),
        Event::Refused(0),
        Event::Looks(0),
        Event::Leaves(0),
        Event::Enters(1, write),
        Event::Enters(2, write),
        Event::Gives(0),
        Event::Polls(2),
    ] {
        world.apply(event);
    }
    assert!(matches!(world.requests[2], Place::Holds(_)));
    world.apply(Event::Refused(1));
    world.apply(Event::Ends(2));
    world.apply(Event::Polls(1));
    assert!(matches!(world.requests[1], Place::Holds(_)));
    world.finish();
}

/// The second request waits for the first: in a fair queue until that has its place, otherwise because they are of one owner.
#[tokio::test(start_paused = true)]
async fn those_that_wait_for_a_request_which_fails_are_woken() {
    let owned = vec![Owner::new(); 2];
    for (owners, first, second) in [
        (vec![], LockMode::Fair, LockMode::Fair),
        (owned, LockMode::Read, LockMode::Write),
    ] {
        for fails in [Event::Fails(0), Event::Abandons(0)] {
            let mut world = World::new(Instant::now());
            world.owners = owners.clone();
            for event in [
                Event::Enters(0, first),
                Event::Unanswered(0),
                Event::Enters(1, second),
                Event::Looks(1),
                Event::Looks(0),
            ] {
                world.apply(event);
            }
            assert!(!world.tasks[1].looks(), "it waits for the first");
            world.apply(fails);
            let last = world.tasks.last_mut().expect("that of the second");
            assert!(last.looks(), "{fails:?} wakes no other");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_after_the_end_of_a_task_starts_another() {
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
