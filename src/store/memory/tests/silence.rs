//! A time in which no waiter asks: the process was stopped, or its threads were blocked.

use super::*;

const ORDERED: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Write,
    LockMode::permits(1),
];

fn waits(store: &MemoryStore, attempt: &Attempt) {
    assert!(matches!(outcome(store, attempt), Outcome::Refused { .. }));
}

#[tokio::test(start_paused = true)]
async fn waiters_that_could_not_ask_keep_their_order() {
    for mode in ORDERED {
        for stall in [2_500, 7_000] {
            let store = MemoryStore::new();
            granted(&store, &attempt(mode, 0));
            (1..5).for_each(|n| waits(&store, &attempt(mode, n)));
            for _ in 0..2 {
                advance(Duration::from_millis(stall)).await;
                (1..5).rev().for_each(|n| waits(&store, &attempt(mode, n)));
            }
            advance(Duration::from_millis(stall)).await;
            released(&store, &attempt(mode, 0));
            for n in 1..5 {
                (n + 1..5).for_each(|n| waits(&store, &attempt(mode, n)));
                granted(&store, &attempt(mode, n));
                released(&store, &attempt(mode, n));
            }
            assert!(store.is_empty(), "{mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_silence_all_have_gone() {
    for mode in ORDERED {
        let store = MemoryStore::new();
        granted(&store, &attempt(mode, 0));
        waits(&store, &attempt(mode, 1));
        released(&store, &attempt(mode, 0));
        advance(8 * SECOND).await;
        granted(&store, &attempt(mode, 2));
    }
}
