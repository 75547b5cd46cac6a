//! Which hold serves a request.

use super::*;
use crate::hold::{Held, valid_for};
use crate::lock::{FencingToken, Hold, HoldId, LockKey};

const LEASE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(1);

/// One that was granted now.
fn hold(lease: Lease, token: Option<u64>, now: Instant) -> shared::Shared {
    let hold = Hold {
        key: LockKey::new("k"),
        mode: LockMode::Write,
        id: HoldId::new(uuid::Uuid::nil(), 1),
    };
    let until = now + valid_for(lease.duration());
    let token = token.map(FencingToken::new);
    let held = Held::new(hold, lease, Route::default(), token, until);
    shared::Shared::new(Arc::new(held), now)
}

fn write(lease: Lease) -> Terms {
    Terms {
        lease,
        ..terms(LockMode::Write)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_fits_a_request_with_its_lease_of_which_a_third_is_left() {
    let now = Instant::now();
    let lease = Lease::Renewed(LEASE);
    let (shared, terms) = (hold(lease, None, now), write(lease));
    let late = shared.held.deadline() - LEASE / 3;
    assert!(shared.fits(&terms, late - TICK));
    assert!(!shared.fits(&terms, late));
    for other in [Lease::Renewed(LEASE / 2), Lease::Fixed(LEASE)] {
        assert!(!shared.fits(&write(other), now), "{other:?}");
    }
    let fenced = Terms {
        fenced: true,
        ..terms
    };
    assert!(!shared.fits(&fenced, now), "it has no token");
    assert!(hold(lease, Some(1), now).fits(&fenced, now));
}

/// Otherwise the store would keep the key for longer than that if the request never ended.
#[tokio::test(start_paused = true)]
async fn a_hold_fits_no_request_whose_longest_hold_it_exceeds() {
    let now = Instant::now();
    let lease = Lease::Renewed(LEASE);
    let shared = hold(lease, None, now);
    let left = shared.held.deadline() - now;
    for (max_hold, fits) in [(left, true), (left - TICK, false)] {
        let max_hold = Some(max_hold);
        let terms = Terms {
            max_hold,
            ..write(lease)
        };
        assert_eq!(shared.fits(&terms, now), fits, "{max_hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_passes_on_in_its_turn_while_it_is_held_and_renewed() {
    let now = Instant::now();
    let limits = HandoverLimits::default();
    let lease = Lease::Renewed(LEASE);
    let (mut shared, terms) = (hold(lease, None, now), write(lease));
    let over = now + limits.handover_time;
    assert!(shared.may_pass_to(&terms, limits, over - TICK));
    assert!(!shared.may_pass_to(&terms, limits, over));
    let fixed = Lease::Fixed(LEASE);
    let short = hold(fixed, None, now);
    assert!(!short.may_pass_to(&write(fixed), limits, now));
    assert!(short.fits(&write(fixed), now));
    // Others wait outside: it is handed over once more.
    shared.limit_handovers(1, limits.handovers);
    assert!(shared.may_pass_to(&terms, limits, now));
    shared.pass_to(&terms, &mut wheel::Wheel::default(), now);
    assert!(!shared.may_pass_to(&terms, limits, now));
    let lost = hold(lease, None, now);
    lost.held.lose();
    assert!(!lost.may_pass_to(&terms, limits, now));
}

/// It is why a request that gives up was busy.
#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_holder_is_its_lease_until_it_ends() {
    let mut world = World::new(Instant::now());
    let began = world.now;
    let (write, permit) = (LockMode::Write, LockMode::permits(1));
    let known = |world: &World, mode, since| {
        let known = |key: &Key| key.known(mode, since, world.now);
        world.table.read(&world.key, known).expect("it is in use")
    };
    world.apply(Event::Enters(0, write));
    world.apply(Event::Granted(0));
    world.apply(Event::Enters(1, write));
    world.apply(Event::Enters(2, write));
    assert_eq!(known(&world, write, began), Some(Some(valid_for(LEASE))));
    assert_eq!(known(&world, permit, began), None, "the store knows");
    world.now += TICK;
    world.apply(Event::Loses(0));
    assert_eq!(known(&world, write, began), None, "it excludes no other");
    world.apply(Event::Ends(0));
    assert_eq!(known(&world, write, world.now), Some(None), "it is free");
    assert_eq!(known(&world, write, world.now + TICK), None, "it was");
}
