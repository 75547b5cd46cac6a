//! Requests of one owner.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::error::LockError;
use crate::lock::Owner;

fn of(owner: &Owner, mode: LockMode) -> Terms {
    Terms {
        owner: Some(owner.clone()),
        ..terms(mode)
    }
}

/// Another owner's question costs nothing: the owner joins its own hold, also one that it asked for twice.
#[tokio::test(start_paused = true)]
async fn an_owner_joins_its_own_hold_and_reads_under_its_own_write() {
    let mut world = World::new(Instant::now());
    let owner = Owner::new();
    let owned = |mode| of(&owner, mode);
    let mut slot = None;
    let write = owned(LockMode::Write);
    let entered = world.entry(|key| key.enter(1, &write, &mut slot));
    assert!(matches!(entered, Ok(Entered::Ask { .. })));
    let read = owned(LockMode::Read);
    let entered = world.entry(|key| key.enter(2, &read, &mut slot));
    let Ok(Entered::Wait { start: Some(task) }) = entered else {
        panic!("it waits behind its owner");
    };
    world.start(task);
    let held = world.hold(LockMode::Write);
    let first = world.event(|key| key.granted(1, held.clone(), &write));
    let first = first.expect("it is here").expect("it is open");
    let slot = slot.expect("it waits");
    let polled = slot.poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Taken::Answer(Ok(second))) = polled else {
        panic!("it joins at the grant: {polled:?}");
    };
    assert!(Arc::ptr_eq(&first.held, &second.held));
    world.end(first);
    assert!(held.is_open(world.now), "the read goes on");
    world.end(second);
    world.apply(Event::Released(0));
    world.next(Side::Read);
    assert_eq!(world.table.len(), 0);
}

/// Its read is granted while its write is asked for, so that the write, once refused, must not wait. Those that wait for it go on.
#[tokio::test(start_paused = true)]
async fn a_write_that_must_not_wait_for_its_owners_read_leaves_nothing() {
    let mut world = World::new(Instant::now());
    let owner = Owner::new();
    let write = of(&owner, LockMode::Write);
    let mut slots = [None, None, None];
    let entered = world.entry(|key| key.enter(1, &write, &mut slots[0]));
    assert!(matches!(entered, Ok(Entered::Ask { .. })));
    let reads = [of(&owner, LockMode::Read), terms(LockMode::Read)];
    for (n, read) in (2..).zip(&reads) {
        let slot = &mut slots[n as usize - 1];
        let entered = world.entry(|key| key.enter(n, read, slot));
        if let Ok(Entered::Wait { start: Some(task) }) = entered {
            world.start(task);
        }
    }
    let held = world.hold(LockMode::Read);
    assert_eq!(world.event(|key| key.given(&held, None)), Some(true));
    let (refused, out) = world.table.entry(&world.key, world.now, |key| {
        key.refused(1, &write, &mut slots[0], (None, false))
    });
    assert!(matches!(refused, Err(LockError::Upgrade)), "{refused:?}");
    let woken = out.others.expect("the task of the readers").wake.len();
    assert_eq!(woken, 1);
    for slot in slots.into_iter().flatten() {
        let polled = slot.poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Taken::Answer(Ok(share))) = polled else {
            panic!("it reads: {polled:?}");
        };
        world.end(share);
    }
    world.next(Side::Read);
    assert_eq!(world.table.len(), 0);
}

/// A second read of the owner comes when no writer waits any more, and shares a hold. The first would wait behind the next writer, which
/// waits for that hold.
#[tokio::test(start_paused = true)]
async fn a_read_that_waits_joins_the_hold_that_its_owner_shares() {
    let mut world = World::new(Instant::now());
    let read = of(&Owner::new(), LockMode::Read);
    let (mut none, mut slot) = (None, None);
    for (n, terms) in [
        (1, terms(LockMode::Read)),
        (2, terms(LockMode::Write)),
        (3, read.clone()),
    ] {
        let entered = world.entry(|key| key.enter(n, &terms, &mut none));
        assert!(
            matches!(entered, Ok(Entered::Ask { .. })),
            "{n}: {entered:?}"
        );
        if n == 1 {
            let held = world.hold(LockMode::Read);
            let granted = world.event(|key| key.granted(n, held, &terms));
            granted.expect("it is here").expect("it is open");
        }
    }
    let news = (None, true);
    let refused = world.entry(|key| key.refused(3, &read, &mut slot, news));
    assert!(matches!(refused, Ok(Entered::Wait { .. })), "{refused:?}");
    world.event(|key| key.left(Side::Exclusive, 2));
    let second = world.entry(|key| key.enter(4, &read, &mut none));
    let Ok(Entered::Share(second)) = second else {
        panic!("no writer waits: {second:?}");
    };
    let slot = slot.expect("it waits");
    let polled = slot.poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Taken::Answer(Ok(first))) = polled else {
        panic!("it joins: {polled:?}");
    };
    assert!(Arc::ptr_eq(&first.held, &second.held));
}
