//! Records, within a budget of memory.

use std::time::Duration;

use tokio::time::advance;

use super::*;

const VALUE: usize = 1000;

fn key(n: usize) -> LockKey {
    LockKey::new(format!("key {n:04}"))
}

fn record(size: usize) -> Record {
    Record {
        value: vec![b'x'; size].into(),
        retention: Duration::from_secs(60),
    }
}

/// Room for `count` records of `VALUE` bytes.
fn room_for(count: usize) -> Records {
    Records::new(count * (key(0).as_str().len() + VALUE + OVERHEAD))
}

fn present(records: &mut Records, keys: std::ops::Range<usize>) -> Vec<usize> {
    let now = Instant::now();
    keys.filter(|n| records.get(&key(*n), now).is_some())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_oldest_go_when_there_is_no_room() {
    let mut records = room_for(3);
    for n in 0..10 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    assert_eq!(present(&mut records, 0..10), [7, 8, 9]);
    assert!(records.size <= records.limit);
    assert_eq!(records.ages.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_replaced_is_new_and_counts_once() {
    let mut records = room_for(3);
    for n in [0, 1, 2, 0, 3] {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    assert_eq!(present(&mut records, 0..4), [0, 2, 3]);
    assert_eq!(records.size, records.limit);
}

/// S10. The last record exists when its key becomes free, however large the record is.
#[tokio::test(start_paused = true)]
async fn a_record_larger_than_the_room_is_kept_until_the_next() {
    let mut records = room_for(2);
    records.keep(&key(0), &record(VALUE), Instant::now());
    records.keep(&key(1), &record(10 * VALUE), Instant::now());
    assert_eq!(present(&mut records, 0..2), [1]);
    records.keep(&key(2), &record(VALUE), Instant::now());
    assert_eq!(present(&mut records, 0..3), [2]);
    assert!(records.size <= records.limit);
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_swept_and_gives_its_room_back() {
    let mut records = room_for(100_000);
    for n in 0..5_000 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    advance(Duration::from_secs(61)).await;
    assert_eq!(present(&mut records, 0..10), [0; 0]);
    for n in 5_000..10_001 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    assert_eq!(records.kept.len(), 5_001);
    assert_eq!(records.ages.len(), 5_001);
    advance(Duration::from_secs(61)).await;
    assert!(records.is_empty(Instant::now()));
    assert_eq!(records.size, 0);
}
