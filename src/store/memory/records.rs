//! What finished work has left, within a budget of memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::time::Instant;

use super::state::after;
use crate::lock::{KeyMap, LockKey};
use crate::store::{Record, RecordEntry};

/// How many bytes records may take together if nothing else is said.
pub(super) const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

/// What a record costs beside its key and its value, in bytes: its entries in two maps.
const OVERHEAD: usize = 256;

/// How many new records a sweep waits for at least.
const SWEEP: usize = 128;

/// The records of a store. The oldest go when there is no room for a new one.
///
/// They stand under one mutex of their own, which is locked while a shard is locked and under which nothing is locked.
/// Between calls, `kept` and `ages` name the same records, `size` is the sum of their costs, and `size` is more than
/// `limit` only while there is just one record.
pub(super) struct Records {
    limit: usize,
    size: usize,
    kept: KeyMap<Kept>,
    /// The keys in the order in which their records came.
    ages: BTreeMap<u64, LockKey>,
    /// The age of the next record.
    next: u64,
    /// How many more records may come before those that have expired are looked for.
    until_sweep: usize,
}

struct Kept {
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

    /// Remembers `record` in place of any other of `key`, and forgets the oldest for which there is no room any more.
    pub(super) fn keep(&mut self, key: &LockKey, record: &Record, now: Instant) {
        self.forget(key);
        let cost = key.as_str().len() + record.value.len() + OVERHEAD;
        let kept = Kept {
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

    /// What is remembered under `key`.
    pub(super) fn get(&mut self, key: &LockKey, now: Instant) -> Option<Bytes> {
        let kept = self.kept.get(key)?;
        if kept.until <= now {
            self.forget(key);
            return None;
        }
        Some(kept.value.clone())
    }

    /// Some records that came after the one of this age, the oldest first; the age of the last one if there are more.
    pub(super) fn list(
        &self,
        after: Option<u64>,
        limit: usize,
        wanted: impl Fn(&LockKey) -> bool,
        now: Instant,
    ) -> (Vec<RecordEntry>, Option<u64>) {
        let mut entries = Vec::new();
        for (age, key) in self.ages.range(after.map_or(0, |age| age + 1)..) {
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

    /// Removes what is remembered under `key`; whether there was anything.
    pub(super) fn remove(&mut self, key: &LockKey, now: Instant) -> bool {
        let was = self.get(key, now).is_some();
        self.forget(key);
        was
    }

    /// Whether nothing is remembered.
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

    /// Counts a new record. A sweep comes when as many are new as the last one left, so that each new record pays for two
    /// looks at most.
    fn pay_for_sweep(&mut self, now: Instant) {
        match self.until_sweep.checked_sub(1) {
            Some(left) => self.until_sweep = left,
            None => self.sweep(now),
        }
    }

    /// Forgets what has expired.
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
