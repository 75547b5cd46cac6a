//! Records, within a budget of memory.

use std::time::Duration;

use tokio::time::advance;

use super::*;

const VALUE: usize = 1000;

fn key(n: usize) -> LockKey {
    LockKey::new(format!("key {n:04}"))
}

fn record(size: usize) -> Record {
    Record::new(vec![b'x'; size], Duration::from_secs(60))
}

/// Room for `count` records of `VALUE` bytes.
fn room_for(count: usize) -> Records {
    Records::new(count * (key(0).as_str().len() + VALUE + OVERHEAD))
}

fn present(records: &Records, keys: std::ops::Range<usize>) -> Vec<usize> {
    let now = Instant::now();
    keys.filter(|n| records.get(&key(*n), now).is_some())
        .collect()
}

impl Records {
    #[track_caller]
    fn assert_sums(&self) {
        let costs = |records: &BTreeSet<u64>| -> usize {
            let keys = records.iter().map(|age| &self.ages[age]);
            keys.map(|key| self.kept[key].cost).sum()
        };
        for ((size, name), ages) in &self.scopes {
            assert_eq!((*size, self.sizes[name]), (costs(ages), *size));
        }
        assert_eq!(self.size, self.sizes.values().sum::<usize>());
        assert_eq!(self.scopes.len(), self.sizes.len());
        let counts = self.scopes.values().map(BTreeSet::len);
        assert_eq!(self.kept.len(), counts.sum::<usize>());
        assert_eq!(self.kept.len(), self.ages.len());
        assert_eq!(self.kept.len(), self.ends.len());
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_go_when_there_is_no_room() {
    let mut records = room_for(3);
    for n in 0..10 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    assert_eq!(present(&records, 0..10), [7, 8, 9]);
    assert!(records.size <= records.limit);
    records.assert_sums();
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_replaced_is_new_and_counts_once() {
    let mut records = room_for(3);
    for n in [0, 1, 2, 0, 3] {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    assert_eq!(present(&records, 0..4), [0, 2, 3]);
    assert_eq!(records.size, records.limit);
    records.assert_sums();
}

/// S10. The last record exists when its key becomes free, however large the record is.
#[tokio::test(start_paused = true)]
async fn a_record_larger_than_the_room_is_kept_until_the_next() {
    let mut records = room_for(2);
    records.keep(&key(0), &record(VALUE), Instant::now());
    records.keep(&key(1), &record(10 * VALUE), Instant::now());
    assert_eq!(present(&records, 0..2), [1]);
    records.keep(&key(2), &record(VALUE), Instant::now());
    assert_eq!(present(&records, 0..3), [2]);
    assert!(records.size <= records.limit);
}

/// Otherwise the payment of one client runs again because another sends many requests.
#[tokio::test(start_paused = true)]
async fn a_flood_of_one_scope_pushes_out_its_own_records() {
    let mut records = room_for(10);
    let (few, many) = (record(VALUE).scope("few"), record(VALUE).scope("many"));
    for n in 0..3 {
        records.keep(&key(n), &few, Instant::now());
    }
    for n in 100..2000 {
        records.keep(&key(n), &many, Instant::now());
    }
    assert_eq!(present(&records, 0..3), [0, 1, 2]);
    assert_eq!(present(&records, 100..2000).last(), Some(&1999));
    assert!(records.size <= records.limit);
    records.assert_sums();
    // The largest scope gives way to a new one, whose record is not the one that goes.
    let huge = record(8 * VALUE).scope("new");
    records.keep(&key(3), &huge, Instant::now());
    assert!(present(&records, 0..4).contains(&3));
    assert!(records.size <= records.limit);
    records.assert_sums();
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_goes_with_new_records_and_gives_its_room_back() {
    let mut records = room_for(100_000);
    for n in 0..5_000 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    advance(Duration::from_secs(61)).await;
    assert_eq!(present(&records, 0..5_000), [0; 0]);
    for n in 5_000..10_000 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    assert_eq!(records.kept.len(), 5_000);
    records.assert_sums();
    advance(Duration::from_secs(61)).await;
    assert!(records.is_empty(Instant::now()));
    assert_eq!(records.size, 0);
    records.assert_sums();
}

#[tokio::test(start_paused = true)]
async fn a_page_looks_at_a_bounded_number_of_records() {
    let mut records = room_for(100_000);
    for n in 0..2 * LOOKS + 1 {
        records.keep(&key(n), &record(VALUE), Instant::now());
    }
    let last = key(2 * LOOKS);
    let (mut after, mut found) = (None, Vec::new());
    for page in 0..3 {
        let (entries, next) = records.list(after, 10, |key| *key == last, Instant::now());
        assert_eq!((entries.is_empty(), next.is_some()), (page < 2, page < 2));
        found.extend(entries);
        after = next;
    }
    assert_eq!(found[0].key, last);
}
