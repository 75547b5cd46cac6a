//! The entries that a shard keeps, and those that it sweeps.

use std::collections::HashSet;
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::lock::{Hold, HoldId, LockMode};

fn hold(key: usize) -> Hold {
    Hold {
        key: LockKey::new(key.to_string()),
        mode: LockMode::Reentrant,
        id: HoldId::new(Uuid::nil(), 1),
    }
}

fn hold_for_a_second(shard: &mut Shard, key: usize) {
    let attempt = Attempt::new(hold(key), Duration::from_secs(1));
    let answer = shard.acquire(&attempt, Instant::now());
    assert!(answer.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_used_again_is_swept_by_new_ones() {
    let mut shard = Shard::default();
    (0..10_000).for_each(|key| hold_for_a_second(&mut shard, key));
    assert_eq!(shard.keys.len(), 10_000);
    tokio::time::advance(Duration::from_secs(1)).await;
    (10_000..20_000).for_each(|key| hold_for_a_second(&mut shard, key));
    assert_eq!(shard.keys.len(), shard.places.len());
    assert!(shard.keys.len() < 15_000, "{} left", shard.keys.len());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(shard.is_empty(Instant::now()));
    assert!(shard.places.is_empty());
    assert!(shard.keys.capacity() < 1_000, "nor is their room kept");
    assert!(shard.places.capacity() < 1_000);
}

/// The first keys that are looked at are not held any more: a list may not look for others before it lets go of the shard.
#[tokio::test(start_paused = true)]
async fn a_list_looks_at_a_bounded_number_of_keys_at_a_time() {
    let mut shard = Shard::default();
    (0..1_000).for_each(|key| hold_for_a_second(&mut shard, key));
    let looks = std::cell::Cell::new(0);
    let none = |_: &LockKey| {
        looks.set(looks.get() + 1);
        false
    };
    let (mut entries, mut end) = (Vec::new(), usize::MAX);
    for _ in 0..1_000 / LOOKS {
        looks.set(0);
        end = shard.list(end, none, &mut entries, 1_000);
        assert_eq!(looks.get(), LOOKS);
    }
    assert_eq!(shard.list(end, none, &mut entries, 1_000), 0);
    assert!(entries.is_empty());
    let all = |_: &LockKey| true;
    assert_eq!(shard.list(usize::MAX, all, &mut entries, 10), 990);
    tokio::time::advance(Duration::from_secs(1)).await;
    shard.list(990, all, &mut entries, 1_000);
    assert_eq!(entries.len(), 10, "the others are over");
}

/// The last key takes the place of one that is removed.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_during_a_whole_list_is_in_it() {
    for seed in 0..200 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let mut shard = Shard::default();
        let mut held: Vec<usize> = (0..300).collect();
        held.iter()
            .for_each(|key| hold_for_a_second(&mut shard, *key));
        let mut always: HashSet<usize> = held.iter().copied().collect();
        let (mut entries, mut end) = (Vec::new(), usize::MAX);
        while end > 0 {
            let full = entries.len() + random.usize(1..30);
            end = shard.list(end, |_| true, &mut entries, full);
            for _ in 0..random.usize(..30).min(held.len()) {
                let released = held.swap_remove(random.usize(..held.len()));
                always.remove(&released);
                let hold = hold(released);
                let now = Instant::now();
                shard.change(&hold.key, now, |key| key.state.release(&hold));
            }
            for _ in 0..random.usize(..20) {
                let new = random.usize(300..1_000_000);
                hold_for_a_second(&mut shard, new);
            }
        }
        let listed: HashSet<_> = entries.iter().map(|entry| entry.key.to_string()).collect();
        assert!(
            always.iter().all(|key| listed.contains(&key.to_string())),
            "seed {seed}"
        );
    }
}

#[test]
fn a_token_rises_when_the_clock_does_not() {
    let mut shard = Shard::default();
    let ahead = wall_clock_micros() + 1_000_000_000;
    shard.counter = ahead;
    let fencing = Fencing {
        retention: Some(Duration::ZERO),
        reserve: 16,
    };
    assert_eq!(shard.issue(fencing).value(), ahead + 1);
    assert_eq!(
        shard.issue(fencing).value(),
        ahead + 18,
        "after those reserved"
    );
}
