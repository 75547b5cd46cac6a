//! Contract 6: the fair queue.

use super::*;
use crate::store::WAITER_LIVENESS;

fn fair(n: u64) -> Attempt {
    attempt(LockMode::Fair, n)
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_the_order_of_their_first_ask() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    (1..=3).for_each(|n| refused(&store, &fair(n), LEASE));
    // Asking again, in another order, changes nothing.
    (1..=3).rev().for_each(|n| refused(&store, &fair(n), LEASE));
    for n in 0..3 {
        released(&store, &fair(n));
        for behind in n + 2..=3 {
            refused(&store, &fair(behind), WAITER_LIVENESS);
        }
        granted(&store, &fair(n + 1));
    }
    released(&store, &fair(3));
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_patience_neither_queues_nor_overtakes() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    refused(&store, &impatient(LockMode::Fair, 1), LEASE);
    refused(&store, &fair(2), LEASE);
    released(&store, &fair(0));
    refused(&store, &impatient(LockMode::Fair, 1), WAITER_LIVENESS);
    granted(&store, &fair(2));
    released(&store, &fair(2));
    granted(&store, &impatient(LockMode::Fair, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_is_skipped_after_its_liveness() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    refused(&store, &fair(1), LEASE); // and never asks again
    advance(2 * SECOND).await;
    refused(&store, &fair(2), LEASE - 2 * SECOND);
    released(&store, &fair(0));
    refused(&store, &fair(2), SECOND);
    advance(SECOND).await;
    granted(&store, &fair(2));
}

#[tokio::test(start_paused = true)]
async fn dead_waiters_delay_the_queue_by_one_liveness_however_many_they_are() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    (1..=100).for_each(|n| refused(&store, &fair(n), LEASE));
    refused(&store, &fair(101), LEASE);
    released(&store, &fair(0));
    for _ in 0..3 {
        assert!(matches!(
            outcome(&store, &fair(101)),
            Outcome::Refused { .. }
        ));
        advance(SECOND).await;
    }
    granted(&store, &fair(101));
}

#[tokio::test(start_paused = true)]
async fn a_live_waiter_that_was_thought_dead_queues_at_the_tail() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    refused(&store, &fair(1), LEASE);
    advance(WAITER_LIVENESS).await;
    refused(&store, &fair(2), LEASE - WAITER_LIVENESS);
    refused(&store, &fair(1), LEASE - WAITER_LIVENESS);
    released(&store, &fair(0));
    refused(&store, &fair(1), WAITER_LIVENESS);
    granted(&store, &fair(2));
}

#[tokio::test(start_paused = true)]
async fn asking_every_second_keeps_the_place() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    refused(&store, &fair(1), LEASE);
    for _ in 0..20 {
        advance(SECOND).await;
        assert!(matches!(outcome(&store, &fair(1)), Outcome::Refused { .. }));
        assert!(matches!(outcome(&store, &fair(2)), Outcome::Refused { .. }));
    }
    released(&store, &fair(0));
    refused(&store, &fair(2), WAITER_LIVENESS);
    granted(&store, &fair(1));
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_head_makes_room_at_once() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    refused(&store, &fair(1), LEASE);
    refused(&store, &fair(2), LEASE);
    released(&store, &fair(0));
    withdraw(&store, &fair(1), true);
    granted(&store, &fair(2));
    refused_as_withdrawn(&store, &fair(1));
    released(&store, &fair(2));
    granted(&store, &fair(3));
}

#[tokio::test(start_paused = true)]
async fn the_plain_mode_overtakes_the_queue_and_excludes_it() {
    let store = MemoryStore::new();
    granted(&store, &fair(0));
    refused(&store, &fair(1), LEASE);
    refused(&store, &attempt(LockMode::Reentrant, 2), LEASE);
    released(&store, &fair(0));
    granted(&store, &attempt(LockMode::Reentrant, 2));
    refused(&store, &fair(1), LEASE);
    released(&store, &attempt(LockMode::Reentrant, 2));
    granted(&store, &fair(1));
}
