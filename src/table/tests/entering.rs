//! Which requests ask the store, wait, or share a hold of their owner.

use super::*;
use crate::error::LockError;
use crate::limits::{ANSWER_TIME, LAST_MOMENT};
use crate::lock::Owner;

const TICK: Duration = Duration::from_millis(1);
const WRITE: LockMode = LockMode::Write;

/// The first `owned` requests are of one owner.
fn world(owned: usize, events: &[Event]) -> World {
    let mut world = World::with(Instant::now(), 5, true);
    world.owners = vec![Owner::new(); owned];
    events.iter().for_each(|event| world.apply(*event));
    world
}

fn asks(world: &World, n: usize) -> bool {
    matches!(world.requests[n], Place::Asks { .. })
}

fn is_overloaded(world: &mut World, n: u64, mode: LockMode, most: usize) -> bool {
    let terms = Terms {
        max_waiters: Some(most),
        ..world.terms(n, mode)
    };
    let entered = world.entry(|key| key.enter(100 + n, &terms, &mut None));
    matches!(entered, Err(LockError::Overloaded))
}

/// It has one place in the store for all of its process.
#[tokio::test(start_paused = true)]
async fn the_second_request_for_permits_asks_beside_the_first() {
    let two = LockMode::permits(2);
    let world = world(0, &[Event::Enters(0, two), Event::Enters(1, two)]);
    let beside = world.requests.iter().map(|place| match place {
        Place::Asks { is_beside, .. } => Some(*is_beside),
        _ => None,
    });
    assert_eq!(
        beside.take(2).collect::<Vec<_>>(),
        [Some(false), Some(true)]
    );
}

/// Its caller may not poll it any more.
#[tokio::test(start_paused = true)]
async fn a_question_keeps_no_other_from_asking_after_its_last_moment() {
    for (owned, mode) in [(0, WRITE), (2, LockMode::Read)] {
        for (waited, may_ask) in [(LAST_MOMENT - TICK, false), (LAST_MOMENT, true)] {
            let mut world = world(owned, &[Event::Enters(0, WRITE)]);
            world.now += waited;
            world.apply(Event::Enters(1, mode));
            assert_eq!(asks(&world, 1), may_ask, "{mode:?} after {waited:?}");
        }
    }
    for (waited, may_ask) in [(LAST_MOMENT - TICK, false), (LAST_MOMENT, true)] {
        let mut world = world(0, &[Event::Enters(0, WRITE)]);
        world.now += waited;
        world.apply(Event::Tries(1, WRITE));
        assert_eq!(asks(&world, 1), may_ask, "without a wait, after {waited:?}");
    }
}

/// It would have two at a time, and its place in the store is that of the first.
#[tokio::test(start_paused = true)]
async fn no_task_asks_for_an_owner_that_asks_itself() {
    let mut world = world(
        2,
        &[Event::Enters(0, LockMode::Read), Event::Enters(1, WRITE)],
    );
    world.apply(Event::Enters(2, LockMode::Fair));
    assert!(asks(&world, 0) && asks(&world, 2));
    let next = world.look(0);
    assert!(matches!(next, Next::Wait { .. }), "{next:?}");
    world.now += LAST_MOMENT;
    let next = world.look(0);
    assert!(matches!(next, Next::Ask { ticket: 1, .. }), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_asks_for_an_owner_while_others_ask() {
    let mut world = world(
        1,
        &[
            Event::Enters(0, WRITE),
            Event::Unanswered(0),
            Event::Enters(1, LockMode::Fair),
        ],
    );
    assert!(asks(&world, 1));
    let next = world.look(0);
    assert!(matches!(next, Next::Ask { ticket: 0, .. }), "{next:?}");
}

/// The one for which the store is asked does not count, and those of others do not stand before it.
#[tokio::test(start_paused = true)]
async fn the_bound_counts_the_requests_of_an_owner_that_wait_for_another_of_it() {
    let mut world = world(
        1,
        &[
            Event::Enters(4, WRITE),
            Event::Granted(4),
            Event::Enters(3, WRITE),
        ],
    );
    assert!(is_overloaded(&mut world, 0, WRITE, 1), "one is before it");
    world.apply(Event::Enters(0, WRITE));
    let owned = |most, world: &mut World| is_overloaded(world, 0, WRITE, most);
    assert!(owned(0, &mut world));
    assert!(!owned(1, &mut world), "the first of the owner is asked for");
    assert!(owned(1, &mut world), "another waits by now");
    assert!(!owned(2, &mut world));
}

#[tokio::test(start_paused = true)]
async fn in_a_fair_queue_each_request_that_asks_counts() {
    let fair = LockMode::Fair;
    let mut world = world(0, &[Event::Enters(0, fair)]);
    assert!(is_overloaded(&mut world, 1, fair, 1));
    world.apply(Event::Refused(0));
    assert!(is_overloaded(&mut world, 1, fair, 1));
    assert!(!is_overloaded(&mut world, 1, fair, 2));
}

/// The store tells of a conflict between families.
#[tokio::test(start_paused = true)]
async fn an_owner_shares_its_hold_within_a_family_alone() {
    let (reentrant, fair) = (LockMode::Reentrant, LockMode::Fair);
    let permit = LockMode::permits(1);
    for (held, mode, shares) in [
        (reentrant, fair, true),
        (fair, reentrant, true),
        (permit, permit, true),
        (reentrant, WRITE, false),
        (WRITE, reentrant, false),
        (permit, WRITE, false),
        (reentrant, permit, false),
    ] {
        let mut world = world(2, &[Event::Enters(0, held), Event::Granted(0)]);
        world.happens(Event::Enters(1, mode));
        let shared = matches!(world.requests[1], Place::Holds(_));
        assert_eq!(shared, shares, "{mode:?} under {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_hears_of_a_loss_that_was_not_noticed() {
    let mut world = world(2, &[Event::Enters(0, WRITE), Event::Granted(0)]);
    let Place::Holds(grant) = &world.requests[0] else {
        panic!("it holds");
    };
    world.now = grant.held.deadline();
    let write = world.terms(1, WRITE);
    let entered = world.entry(|key| key.enter(1, &write, &mut None));
    assert!(matches!(entered, Err(LockError::Lost)), "{entered:?}");
}

/// Its write waits for another hold than the permit that the owner gets.
#[tokio::test(start_paused = true)]
async fn a_grant_of_another_family_leaves_the_requests_of_its_owner_in_line() {
    let mut world = world(2, &[Event::Enters(0, LockMode::permits(1))]);
    world.apply(Event::Enters(1, WRITE));
    world.happens(Event::Granted(0));
    let waits = |place: &Place| matches!(place, Place::Waits(_, slot) if slot.waits());
    assert!(waits(&world.requests[1]));
}

/// It has the better place in the store, so that a new task goes on with it.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_asked_first_replaces_the_task() {
    for (is_refused, tasks) in [(true, 2), (false, 1)] {
        let mut world = world(0, &[Event::Enters(0, WRITE)]);
        world.apply(Event::Enters(1, WRITE));
        world.now += LAST_MOMENT;
        let next = world.look(0);
        assert!(matches!(next, Next::Ask { .. }), "{next:?}");
        world.apply(match is_refused {
            true => Event::Refused(0),
            false => Event::Unanswered(0),
        });
        assert_eq!(world.tasks.len(), tasks, "refused: {is_refused}");
    }
}

/// The store grants reads beside each other, and the youngest serves others longest.
#[tokio::test(start_paused = true)]
async fn a_reader_joins_the_youngest_hold_while_that_is_young() {
    let read = LockMode::Read;
    let mut world = world(0, &[Event::Enters(0, read), Event::Granted(0)]);
    let window = world.table.limits.share_window;
    world.now += window;
    world.apply(Event::Enters(1, read));
    world.apply(Event::Granted(1));
    world.now += window - TICK;
    world.apply(Event::Enters(2, read));
    let hold = |place: &Place| match place {
        Place::Holds(grant) => grant.held.hold.id,
        other => panic!("it holds: {other:?}"),
    };
    assert_eq!(hold(&world.requests[2]), hold(&world.requests[1]));
    world.now += TICK;
    world.apply(Event::Enters(3, read));
    assert!(asks(&world, 3), "it is young no more");
}

/// After a writer, the readers have the turn; and only the store knows who has the next permit.
#[tokio::test(start_paused = true)]
async fn a_hold_does_not_pass_to_a_writer_before_readers_nor_does_a_permit() {
    let mut writers = world(0, &[Event::Enters(0, WRITE), Event::Granted(0)]);
    writers.apply(Event::Enters(1, WRITE));
    writers.apply(Event::Enters(2, LockMode::Read));
    writers.apply(Event::Ends(0));
    assert_eq!(writers.releases.len(), 1);
    let one = LockMode::permits(1);
    let mut permits = world(0, &[Event::Enters(0, one), Event::Granted(0)]);
    permits.apply(Event::Enters(1, one));
    permits.apply(Event::Refused(1));
    permits.apply(Event::Ends(0));
    assert_eq!(permits.releases.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_release_ends_that_release_alone() {
    let mut world = world(
        0,
        &[Event::Enters(0, WRITE), Event::Granted(0), Event::Ends(0)],
    );
    let first = world.now;
    world.now += TICK;
    world.apply(Event::Tries(1, WRITE));
    for event in [Event::Granted(1), Event::Ends(1), Event::Enters(2, WRITE)] {
        world.apply(event);
    }
    world.apply(Event::Released(1));
    let next = world.look(0);
    let until = match next {
        Next::Wait { until, .. } => until,
        other => panic!("the first is under way: {other:?}"),
    };
    assert_eq!(until, first + ANSWER_TIME);
    world.apply(Event::WakesOthersInLine(0));
    let yields = world.table.read(&world.key, |key| {
        key.line(Side::Exclusive).is_some_and(|line| line.yields)
    });
    assert_eq!(yields, Some(true), "others wait outside");
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_others_wakes_no_task() {
    let mut world = world(0, &[Event::Enters(0, WRITE), Event::Granted(0)]);
    world.apply(Event::Enters(1, WRITE));
    let later = world.terms(2, WRITE);
    let entered = world
        .table
        .entry(&world.key, world.now, |key| key.enter(2, &later, &mut None));
    assert!(entered.1.others.is_none(), "{:?}", entered.1.others);
}
