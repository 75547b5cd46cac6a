//! What the task of a contended key does next.

use super::*;
use crate::limits::{ANSWER_TIME, LAST_MOMENT};
use crate::store::{HoldStatus, Released};
use crate::table::line::CLAIM;

const TICK: Duration = Duration::from_millis(1);

fn world(events: &[Event]) -> World {
    let mut world = World::with(Instant::now(), 4, true);
    events.iter().for_each(|event| world.apply(*event));
    world
}

/// The request that a task asks for.
fn asked(next: &Next) -> Option<u64> {
    match next {
        Next::Ask { ticket, .. } => Some(*ticket),
        _ => None,
    }
}

/// Until when it waits.
fn wait(next: &Next) -> Option<Instant> {
    match next {
        Next::Wait { until, .. } => Some(*until),
        _ => None,
    }
}

/// So many ask for themselves, and its place in the store would be behind theirs.
#[tokio::test(start_paused = true)]
async fn a_task_asks_for_a_permit_if_fewer_ask_than_there_are() {
    let two = LockMode::permits(2);
    let mut room = world(&[Event::Enters(0, two), Event::Enters(1, two)]);
    let first = room.now;
    room.now += TICK;
    room.apply(Event::Unanswered(1));
    room.apply(Event::Enters(2, two));
    assert_eq!(asked(&room.look(0)), Some(1));
    let mut full = world(&[Event::Enters(0, two)]);
    full.now += TICK;
    full.apply(Event::Enters(1, two));
    full.apply(Event::Enters(2, two));
    assert_eq!(
        wait(&full.look(0)),
        Some(first + LAST_MOMENT),
        "of the first"
    );
}

/// The store knows the order of those that have a place.
#[tokio::test(start_paused = true)]
async fn a_fair_request_waits_until_earlier_ones_have_their_places() {
    let fair = LockMode::Fair;
    let mut world = world(&[Event::Enters(0, fair), Event::Enters(1, fair)]);
    let asks = world.now + LAST_MOMENT;
    assert_eq!(wait(&world.look(0)), Some(asks), "the first asks itself");
    world.apply(Event::Unanswered(0));
    assert_eq!(wait(&world.look(0)), Some(asks), "its task has not asked");
    let task = world.tasks[0].task.clone();
    world.event(|key| key.line_refused(&task, None));
    assert_eq!(asked(&world.look(0)), Some(1), "it has its own place");
}

#[tokio::test(start_paused = true)]
async fn a_fair_request_does_not_wait_for_the_release_of_its_process() {
    let fair = LockMode::Fair;
    let mut world = world(&[
        Event::Enters(0, fair),
        Event::Granted(0),
        Event::Enters(1, fair),
        Event::Ends(0),
    ]);
    assert_eq!(asked(&world.look(0)), Some(1));
}

/// It would hear that the key is free only after the release, and a store that hangs must not stop it.
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_the_answer_to_a_release_for_a_while() {
    let write = LockMode::Write;
    let mut world = world(&[
        Event::Enters(0, write),
        Event::Granted(0),
        Event::Ends(0),
        Event::Enters(1, write),
        Event::Enters(2, write),
    ]);
    let released = world.now + ANSWER_TIME;
    assert_eq!(wait(&world.look(0)), Some(released));
    world.now = released;
    let next = world.look(0);
    assert!(
        matches!(
            next,
            Next::Ask {
                ticket: 1,
                after: None,
                behind: 1,
                ..
            }
        ),
        "{next:?}"
    );
}

/// A release wakes clients that stand in no line: they ask first, unless the task is the only one that was woken.
#[tokio::test(start_paused = true)]
async fn a_task_lets_others_ask_first_whom_a_release_has_woken() {
    let write = LockMode::Write;
    let events = [
        Event::Enters(0, write),
        Event::Granted(0),
        Event::Ends(0),
        Event::Enters(1, write),
        Event::WakesOthers(0),
    ];
    let mut woken = world(&events);
    let next = woken.look(0);
    let Next::Ask {
        after: Some(after), ..
    } = next
    else {
        panic!("others ask first: {next:?}");
    };
    let pause = after - woken.now;
    assert!((2..=5).contains(&pause.as_millis()), "{pause:?}");
    let mut listening = world(&events[..4]);
    let task = listening.tasks[0].task.clone();
    listening.event(|key| key.listens(&task, true));
    let held = listening.releases.remove(0).held;
    let mut released = |notified| {
        let released = Released::new(HoldStatus::Held, notified);
        let pause = listening.event(|key| key.released(&held, released));
        pause.expect("it is in use").is_some()
    };
    assert!(!released(1), "only its own subscription");
    assert!(!released(2), "the release is over");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_replaced_ends() {
    let write = LockMode::Write;
    let mut world = world(&[
        Event::Enters(0, write),
        Event::Granted(0),
        Event::Enters(1, write),
        Event::Leaves(1),
        Event::Enters(2, write),
    ]);
    assert_eq!(world.tasks.len(), 2);
    assert!(matches!(world.look(0), Next::Done), "none waits for it");
    assert!(matches!(world.look(0), Next::Wait { .. }));
}

/// Its slot has not got it yet: it can be taken away a little later.
#[tokio::test(start_paused = true)]
async fn a_grant_on_its_way_is_looked_at_again_soon() {
    let write = LockMode::Write;
    let mut world = world(&[Event::Enters(0, write), Event::Unanswered(0)]);
    assert_eq!(asked(&world.look(0)), Some(0));
    let held = world.hold(write);
    let given = world
        .table
        .event(&world.key, world.now, |key| key.given(&held, None));
    let (is_taken, on_its_way) = given.expect("it is in use");
    assert!(is_taken);
    for since in [CLAIM / 4, CLAIM / 2, CLAIM * 2] {
        world.now += since;
        let next = world.look(0);
        let Next::Idle { until } = next else {
            panic!("it is not taken: {next:?}");
        };
        assert_eq!(
            until,
            world.now + CLAIM.saturating_sub(since).max(CLAIM / 2)
        );
    }
    world.run(on_its_way);
    world.apply(Event::Polls(0));
    world.apply(Event::Ends(0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_asks_for_a_permit_unless_others_were_refused() {
    let one = LockMode::permits(1);
    let mut world = world(&[Event::Enters(0, one), Event::Unanswered(0)]);
    let tries = |world: &mut World, n| {
        world.apply(Event::Tries(n, one));
        matches!(
            world.requests[n as usize],
            Place::Asks {
                is_beside: false,
                ..
            }
        )
    };
    assert!(tries(&mut world, 1), "nothing is known of those that wait");
    world.apply(Event::Refused(1));
    assert_eq!(asked(&world.look(0)), Some(0));
    world.apply(Event::Refuses(0));
    assert!(!tries(&mut world, 2), "they would have the next one");
}
