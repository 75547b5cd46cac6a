//! Contract 7: readers and writers take turns.

use super::*;
use crate::store::WAITER_LIVENESS;

fn read(n: u64) -> Attempt {
    attempt(LockMode::Read, n)
}

fn write(n: u64) -> Attempt {
    attempt(LockMode::Write, n)
}

#[tokio::test(start_paused = true)]
async fn a_writer_gets_in_among_looping_readers() {
    let store = MemoryStore::new();
    let mut reading = 0;
    granted(&store, &read(reading));
    refused(&store, &write(1_000), LEASE);
    for _ in 0..10 {
        // The next reader asks before the last one releases.
        refused(&store, &read(reading + 1), WAITER_LIVENESS);
        refused(&store, &impatient(LockMode::Read, 500), WAITER_LIVENESS);
        released(&store, &read(reading));
        granted(&store, &write(1_000));
        refused(&store, &read(reading + 1), LEASE);
        released(&store, &write(1_000));
        reading += 1;
        granted(&store, &read(reading));
        refused(&store, &write(1_000), LEASE);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_get_in_among_looping_writers() {
    let store = MemoryStore::new();
    for writing in 1_000..1_010 {
        granted(&store, &write(writing));
        refused(&store, &write(writing + 1), LEASE);
        refused(&store, &read(1), LEASE);
        refused(&store, &read(2), LEASE);
        released(&store, &write(writing));
        refused(&store, &write(writing + 1), WAITER_LIVENESS);
        granted(&store, &read(1));
        refused(&store, &write(writing + 1), LEASE);
        released(&store, &read(1));
        refused(&store, &write(writing + 1), WAITER_LIVENESS);
        granted(&store, &read(2));
        // The reader phase is over: readers that ask now, or ask again, are behind the writer.
        refused(&store, &read(3), WAITER_LIVENESS);
        refused(&store, &read(1), WAITER_LIVENESS);
        released(&store, &read(2));
        withdraw(&store, &read(3), false);
        withdraw(&store, &read(1), false);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_gave_up_or_died_does_not_hold_back_writers() {
    let store = MemoryStore::new();
    granted(&store, &write(1));
    refused(&store, &read(2), LEASE);
    refused(&store, &read(3), LEASE);
    refused(&store, &read(4), LEASE);
    withdraw(&store, &read(2), false);
    released(&store, &write(1));
    withdraw(&store, &read(3), true);
    refused(&store, &write(5), WAITER_LIVENESS); // for 4, which is dead
    advance(WAITER_LIVENESS - SECOND).await;
    refused(&store, &write(5), SECOND);
    advance(SECOND).await;
    granted(&store, &write(5));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_died_before_the_release_gets_no_pass() {
    let store = MemoryStore::new();
    granted(&store, &write(1));
    refused(&store, &read(2), LEASE);
    advance(WAITER_LIVENESS).await;
    released(&store, &write(1));
    granted(&store, &write(3));
}

#[tokio::test(start_paused = true)]
async fn an_impatient_reader_gets_no_pass() {
    let store = MemoryStore::new();
    granted(&store, &write(1));
    refused(&store, &impatient(LockMode::Read, 2), LEASE);
    released(&store, &write(1));
    granted(&store, &write(3));
}

#[tokio::test(start_paused = true)]
async fn a_dead_or_impatient_or_withdrawn_writer_does_not_hold_back_readers() {
    let store = MemoryStore::new();
    granted(&store, &read(1));
    refused(&store, &impatient(LockMode::Write, 2), LEASE);
    granted(&store, &read(3));
    refused(&store, &write(4), LEASE);
    refused(&store, &read(5), WAITER_LIVENESS);
    withdraw(&store, &write(4), false);
    granted(&store, &read(5));
    refused(&store, &write(6), LEASE);
    advance(SECOND).await;
    refused(&store, &read(7), WAITER_LIVENESS - SECOND);
    advance(WAITER_LIVENESS - SECOND).await;
    granted(&store, &read(7));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_holds_is_not_refused_for_a_waiting_writer() {
    let store = MemoryStore::new();
    granted(&store, &read(1));
    refused(&store, &write(2), LEASE);
    granted(&store, &read(1));
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_write_hold_ends_like_a_released_one() {
    let store = MemoryStore::new();
    granted(&store, &write(1));
    refused(&store, &read(2), LEASE);
    withdraw(&store, &write(1), true);
    refused(&store, &write(3), WAITER_LIVENESS);
    granted(&store, &read(2));
}
