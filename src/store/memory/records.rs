//! Records, within a budget of memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use tokio::time::Instant;

use crate::limits::after;
use crate::lock::{KeyMap, LockKey};
use crate::store::{Record, RecordEntry};

/// The default limit of all records together, in bytes.
pub(super) const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

/// What a record costs beside its key and its value, in bytes: its entries in two maps.
const OVERHEAD: usize = 256;

/// The fewest new records between two sweeps.
const SWEEP: usize = 128;

/// The records of a store. When a new record exceeds the limit, the oldest are removed.
///
/// One mutex protects them. It may be taken under a shard's mutex, and no other mutex is taken under it. Between calls,
/// `kept` and `ages` name the same records, `size` is the sum of their costs, and `size` is more than `limit` only while
/// there is just one record.
pub(super) struct Records {
    limit: usize,
    size: usize,
    kept: KeyMap<StoredRecord>,
    /// The keys in the order in which their records were kept.
    ages: BTreeMap<u64, LockKey>,
    /// The age of the next record.
    next: u64,
    /// How many more records may be kept before the next sweep.
    until_sweep: usize,
}

struct StoredRecord {
    value: Bytes,
    until: Instant,
    age: u64,
    cost: usize,
}

impl Records {
    /// No records, and room for `limit` bytes of them.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            size: 0,
            kept: KeyMap::default(),
            ages: BTreeMap::new(),
            next: 0,
            until_sweep: SWEEP,
        }
    }

    /// Keeps `record` in place of any other of `key`, and removes the oldest records that exceed the limit.
    pub(super) fn keep(&mut self, key: &LockKey, record: &Record, now: Instant) {
        self.forget(key);
        let cost = key.as_str().len() + record.value.len() + OVERHEAD;
        let kept = StoredRecord {
            value: record.value.clone(),
            until: after(now, record.retention),
            age: self.next,
            cost,
        };
        self.ages.insert(self.next, key.clone());
        self.kept.insert(key.clone(), kept);
        self.next += 1;
        self.size += cost;
        self.pay_for_sweep(now);
        while self.size > self.limit && self.ages.len() > 1 {
            let oldest = self.ages.first_key_value().map(|(_, key)| key.clone());
            self.forget(&oldest.expect("there are several"));
        }
    }

    /// The record of `key`.
    pub(super) fn get(&mut self, key: &LockKey, now: Instant) -> Option<Bytes> {
        let kept = self.kept.get(key)?;
        if kept.until <= now {
            self.forget(key);
            return None;
        }
        Some(kept.value.clone())
    }

    /// Some records that are newer than this age, the oldest first; and the age of the last one if there are more.
    pub(super) fn list(
        &self,
        after: Option<u64>,
        limit: usize,
        wanted: impl Fn(&LockKey) -> bool,
        now: Instant,
    ) -> (Vec<RecordEntry>, Option<u64>) {
        let mut entries = Vec::new();
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (age, key) in self.ages.range((first, Bound::Unbounded)) {
            let Some(kept) = self.kept.get(key).filter(|kept| kept.until > now) else {
                continue;
            };
            if wanted(key) {
                let size = kept.value.len() as u64;
                entries.push(RecordEntry::new(key.clone(), size, kept.until - now));
            }
            if entries.len() >= limit {
                return (entries, Some(*age));
            }
        }
        (entries, None)
    }

    /// Removes the record of `key`. Returns whether there was one.
    pub(super) fn remove(&mut self, key: &LockKey, now: Instant) -> bool {
        let was = self.get(key, now).is_some();
        self.forget(key);
        was
    }

    /// Whether there is no record.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.sweep(now);
        self.kept.is_empty()
    }

    fn forget(&mut self, key: &LockKey) {
        if let Some(kept) = self.kept.remove(key) {
            self.ages.remove(&kept.age);
            self.size -= kept.cost;
        }
    }

    /// Counts a new record. A sweep runs after as many new records as the last sweep left, so that each new record causes
    /// two checks at most.
    fn pay_for_sweep(&mut self, now: Instant) {
        match self.until_sweep.checked_sub(1) {
            Some(left) => self.until_sweep = left,
            None => self.sweep(now),
        }
    }

    /// Removes records that have expired.
    fn sweep(&mut self, now: Instant) {
        let Self {
            kept, ages, size, ..
        } = self;
        kept.retain(|_, record| {
            let stays = record.until > now;
            if !stays {
                ages.remove(&record.age);
                *size -= record.cost;
            }
            stays
        });
        self.until_sweep = SWEEP.max(self.kept.len());
        self.kept.shrink_to(2 * self.until_sweep);
    }
}

#[cfg(test)]
#[path = "tests/records.rs"]
mod tests;
