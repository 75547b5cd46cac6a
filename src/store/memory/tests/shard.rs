//! The entries that a shard keeps, and those that it sweeps.

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::lock::{Hold, HoldId, LockMode};

fn hold_for_a_second(shard: &mut Shard, key: usize) {
    let attempt = Attempt {
        hold: Hold {
            key: LockKey::new(key.to_string()),
            mode: LockMode::Reentrant,
            id: HoldId::new(Uuid::nil(), 1),
        },
        id: HoldId::new(Uuid::nil(), 1),
        lease: Duration::from_secs(1),
        patience: None,
        in_line: true,
        fencing: None,
    };
    let answer = shard.acquire(&attempt, Instant::now());
    assert!(answer.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_used_again_is_swept_by_new_ones() {
    let mut shard = Shard::default();
    (0..10_000).for_each(|key| hold_for_a_second(&mut shard, key));
    assert_eq!(shard.entries.len(), 10_000);
    tokio::time::advance(Duration::from_secs(1)).await;
    (10_000..20_000).for_each(|key| hold_for_a_second(&mut shard, key));
    assert!(shard.entries.len() < 15_000, "{} left", shard.entries.len());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(shard.is_empty(Instant::now()));
    assert!(shard.entries.capacity() < 1_000, "nor is their room kept");
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
