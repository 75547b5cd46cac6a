//! What an operator sees.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_is_in_the_store_if_the_store_has_refused_it() {
    let (write, fair) = (LockMode::Write, LockMode::Fair);
    for (mode, is_refused, expected) in [
        (write, false, [false, false]),
        (write, true, [true, false]),
        (fair, true, [true, true]),
    ] {
        let mut world = World::new(Instant::now());
        world.apply(Event::Enters(0, mode));
        world.apply(match is_refused {
            true => Event::Refused(0),
            false => Event::Unanswered(0),
        });
        world.now += Duration::from_millis(1);
        world.apply(Event::Enters(1, mode));
        let seen = world.table.snapshot_of(&world.key, world.now);
        let waiters = seen.expect("it is in use").waiters;
        let in_store: Vec<_> = waiters.iter().map(|waiter| waiter.in_store).collect();
        assert_eq!(in_store, expected, "{mode:?}, refused: {is_refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_key_is_on_one_page() {
    let mut world = World::new(Instant::now());
    world.apply(Event::Enters(0, LockMode::Write));
    let pages = (0..).map_while(|page| world.table.snapshot(page, world.now));
    let pages: Vec<_> = pages.collect();
    assert_eq!(pages.len(), SHARDS);
    let keys: Vec<_> = pages.into_iter().flatten().collect();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].key, world.key);
}
