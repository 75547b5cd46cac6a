//! Readers with a longest hold.

use super::*;
use crate::error::LockError;
use crate::hold::Held;
use crate::store::HoldStatus;
use crate::table::key::MAX_READ_HOLDS;

const LONGEST: Duration = Duration::from_secs(60);

fn read(max_hold: Option<Duration>) -> Terms {
    Terms {
        max_hold,
        ..terms(LockMode::Read)
    }
}

/// A reader comes. If it asks, its hold is granted. Returns the hold, and whether that was new.
fn reads(world: &mut World, number: u64, terms: &Terms) -> (Arc<Held>, bool) {
    let entered = world.entry(|key| key.enter(number, terms, &mut None));
    match entered.expect("there is room") {
        Entered::Share(grant) => (grant.held, false),
        Entered::Ask { .. } => {
            let held = world.hold(LockMode::Read);
            let granted = world.event(|key| key.granted(number, held, terms));
            let grant = granted.expect("it is here").expect("it is open");
            (grant.held, true)
        }
        Entered::Wait { .. } => panic!("no writer waits"),
    }
}

#[tokio::test(start_paused = true)]
async fn readers_share_a_hold_with_the_same_longest_hold_alone() {
    let mut world = World::new(Instant::now());
    let (none, minute) = (read(None), read(Some(LONGEST)));
    let (unlimited, _) = reads(&mut world, 1, &none);
    let (limited, is_new) = reads(&mut world, 2, &minute);
    assert!(is_new, "the first has no limit");
    assert_eq!(unlimited.limit(), None);
    assert_eq!(limited.limit(), Some(world.now + LONGEST));
    world.now += Duration::from_millis(1);
    for (number, terms, held) in [(3, &none, &unlimited), (4, &minute, &limited)] {
        let limit = held.limit();
        let (shared, _) = reads(&mut world, number, terms);
        assert!(Arc::ptr_eq(&shared, held), "{number} shares");
        assert_eq!(held.limit(), limit, "{number} takes it as it is");
    }
    let (_, is_new) = reads(&mut world, 5, &read(Some(2 * LONGEST)));
    assert!(is_new);
}

/// Then it asks for a hold of its own, rather than losing its lock much too early.
#[tokio::test(start_paused = true)]
async fn a_reader_too_many_shares_a_hold_while_half_of_its_longest_hold_is_left() {
    let mut world = World::new(Instant::now());
    let terms = read(Some(LONGEST));
    let mut youngest = None;
    for number in 0..MAX_READ_HOLDS as u64 {
        world.now += 2 * world.table.limits.share_window;
        let (held, is_new) = reads(&mut world, number, &terms);
        assert!(is_new, "the others are old");
        youngest = Some(held);
    }
    let youngest = youngest.expect("there are many");
    let limit = world.now + LONGEST;
    assert_eq!(youngest.limit(), Some(limit));
    let sent = Some((world.now + LONGEST / 3, youngest.lease.duration()));
    youngest.answered(youngest.question(), HoldStatus::Held, sent);
    world.now += LONGEST / 2 - Duration::from_millis(1);
    let (shared, _) = reads(&mut world, 1000, &terms);
    assert!(Arc::ptr_eq(&shared, &youngest));
    assert_eq!(youngest.limit(), Some(limit), "it takes it as it is");
    world.now += Duration::from_millis(1);
    assert!(reads(&mut world, 1001, &terms).1, "half of it is over");
}

/// It cannot share what the others ask for, and keeps nothing from them.
#[tokio::test(start_paused = true)]
async fn reads_that_do_not_wait_ask_beside_each_other_up_to_the_most_holds() {
    let mut world = World::new(Instant::now());
    let terms = Terms {
        max_waiters: None,
        ..read(None)
    };
    let mut tries = |number| world.entry(|key| key.enter(number, &terms, &mut None));
    for number in 0..MAX_READ_HOLDS as u64 {
        let entered = tries(number).expect("there is room");
        assert!(matches!(entered, Entered::Ask { .. }), "{number}");
    }
    let refused = tries(MAX_READ_HOLDS as u64);
    assert!(matches!(refused, Err(LockError::Busy { .. })));
}
