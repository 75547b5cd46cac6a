//! Contract 10: the turn of waiters outside the line.

use super::*;

fn permit(n: u64) -> Attempt {
    attempt(LockMode::permits(2), n)
}

/// The other permit is still held, which does not end the turn.
#[tokio::test(start_paused = true)]
async fn waiters_outside_the_line_keep_their_turn_while_a_permit_is_free() {
    let store = MemoryStore::new();
    let turn = Duration::from_millis(5);
    (0..2).for_each(|n| granted(&store, &permit(n)));
    refused(&store, &permit(2), LEASE);
    let _outside = subscribe(&store, &permit(3).in_line(false));
    released(&store, &permit(0));
    for _ in 0..2 {
        refused(&store, &permit(2), turn);
    }
    advance(turn).await;
    granted(&store, &permit(2));
}

/// One of them has taken the permit, and the others have no turn after its release.
#[tokio::test(start_paused = true)]
async fn the_turn_of_waiters_outside_the_line_ends_when_no_permit_is_free() {
    let store = MemoryStore::new();
    (0..2).for_each(|n| granted(&store, &permit(n)));
    let outside = subscribe(&store, &permit(3).in_line(false));
    released(&store, &permit(0));
    drop(outside);
    granted(&store, &permit(3).in_line(false));
    refused(&store, &permit(2), LEASE);
    released(&store, &permit(3));
    granted(&store, &permit(2));
}
