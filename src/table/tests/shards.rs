//! How many keys there are, and the memory that they leave.

use super::*;
use crate::error::LockError;
use crate::lock::LockKey;

/// So many keys of one shard, each different.
fn keys(shard: usize) -> impl Iterator<Item = LockKey> {
    let keys = (0_u32..).map(|n| LockKey::new(n.to_string()));
    keys.filter(move |key| key.place_among(SHARDS) == shard)
}

fn with_room(max_keys: usize) -> Table {
    Table::new(HandoverLimits::default(), max_keys, true)
}

/// A request that asks the store from now on.
fn asks(table: &Table, key: &LockKey) -> Result<Entered, LockError> {
    let terms = terms(LockMode::Write);
    let entry = table.entry(key, Instant::now(), |key| key.enter(1, &terms, &mut None));
    entry.0
}

fn leaves(table: &Table, key: &LockKey) {
    let left = table.event(key, Instant::now(), |key| key.left(Side::Exclusive, 1));
    left.expect("it asks");
}

#[test]
fn a_key_too_many_has_no_room_until_another_has_left() {
    let table = with_room(3);
    let keys: Vec<_> = keys(0).take(2).chain(keys(1).take(2)).collect();
    for key in &keys[..3] {
        assert!(asks(&table, key).is_ok());
    }
    assert!(matches!(asks(&table, &keys[3]), Err(LockError::Overloaded)));
    assert_eq!(table.len(), 3, "it leaves nothing");
    leaves(&table, &keys[0]);
    assert!(asks(&table, &keys[3]).is_ok());
}

/// Counting all shards for each request costs too much, so that a shard with few keys has room, whatever the others have.
#[test]
fn a_shard_has_room_for_half_of_its_part_of_many_keys() {
    let many = 64 * SHARDS;
    for (max_keys, has_room) in [(many, true), (many - 1, false)] {
        let table = with_room(max_keys);
        for key in keys(0).take(max_keys) {
            assert!(asks(&table, &key).is_ok());
        }
        let entered = keys(1).take(33).map(|key| asks(&table, &key));
        let entered = entered.take_while(Result::is_ok).count();
        assert_eq!(entered, if has_room { 32 } else { 0 }, "of {max_keys}");
    }
}

#[test]
fn keys_that_have_left_free_their_memory() {
    let table = with_room(10_000);
    let capacity = || table.shard(0).keys.capacity();
    // Half full: so a key that leaves gives its place back at once.
    let keys: Vec<_> = keys(0).take(230).collect();
    for key in &keys {
        assert!(asks(&table, key).is_ok());
    }
    let before = capacity();
    let is_kept = || capacity() > before / 2;
    let (first, last) = keys.split_at(before / 8);
    for key in last {
        leaves(&table, key);
        assert!(is_kept(), "{} of {before}", capacity());
    }
    for key in &first[before / 16..] {
        leaves(&table, key);
    }
    assert!(!is_kept(), "{} of {before}", capacity());
    first[..before / 16]
        .iter()
        .for_each(|key| leaves(&table, key));
    // Less would be allocated again by the next few.
    let mut small = crate::lock::KeyMap::<()>::default();
    small.reserve(128);
    let small = small.capacity();
    assert!(
        capacity() > small / 2 && capacity() <= small,
        "{} of {small}",
        capacity()
    );
}
