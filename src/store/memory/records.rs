//! Records, within a budget of memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::limits::after;
use crate::lock::{KeyMap, LockKey};
use crate::store::{Record, RecordEntry};

/// The default limit of all records together, in bytes.
pub(super) const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

/// What a record costs beside its key, its scope and its value, in bytes: its entries in the maps.
const OVERHEAD: usize = 320;

/// How many records that are over a call removes, so that none of them takes long: each new record pays for several old ones.
const REMOVED: usize = 8;

/// How many records a page of a list looks at.
const LOOKS: usize = 1000;

/// The records of a store. When a new one exceeds the limit, the oldest of the largest scope go first.
///
/// One mutex protects them. It may be taken under a shard's mutex, and no other mutex is taken under it. Between calls, `kept`,
/// `ages`, `ends` and all `scopes` name the same records; `size`, `sizes` and the sizes in `scopes` are the sums of their costs; and
/// `size` is more than `limit` only while there is just one record.
pub(super) struct Records {
    limit: usize,
    size: usize,
    kept: KeyMap<StoredRecord>,
    /// The keys in the order in which their records were kept.
    ages: BTreeMap<u64, LockKey>,
    /// The ends of the records, the earliest first.
    ends: BTreeSet<(Instant, u64)>,
    /// The size of each scope with a record.
    sizes: HashMap<Arc<str>, usize>,
    /// The ages of the records of each scope, the largest scope last.
    scopes: BTreeMap<(usize, Arc<str>), BTreeSet<u64>>,
    /// The age of the next record.
    next: u64,
}

struct StoredRecord {
    value: Bytes,
    scope: Arc<str>,
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
            ends: BTreeSet::new(),
            sizes: HashMap::new(),
            scopes: BTreeMap::new(),
            next: 0,
        }
    }

    /// Keeps `record` in place of any other of `key`, and removes those for which there is no room any more.
    pub(super) fn keep(&mut self, key: &LockKey, record: &Record, now: Instant) {
        self.forget(key);
        self.expire(now, REMOVED);
        let kept = StoredRecord {
            value: record.value.clone(),
            scope: record.scope.clone(),
            until: after(now, record.retention),
            age: self.next,
            cost: key.as_str().len() + record.scope.len() + record.value.len() + OVERHEAD,
        };
        self.next += 1;
        self.size += kept.cost;
        self.ages.insert(kept.age, key.clone());
        self.ends.insert((kept.until, kept.age));
        let (age, cost) = (kept.age, kept.cost);
        self.resize(&kept.scope, |size, ages| {
            *size += cost;
            ages.insert(age);
        });
        self.kept.insert(key.clone(), kept);
        while self.size > self.limit {
            let Some(next) = self.next_to_go(age) else {
                return;
            };
            self.forget(&next);
        }
    }

    /// The oldest record of the largest scope, but not the newest record, which exists when its key becomes free, whatever its size.
    fn next_to_go(&self, newest: u64) -> Option<LockKey> {
        let mut oldest = self.scopes.values().rev().filter_map(BTreeSet::first);
        let age = oldest.find(|age| **age != newest)?;
        self.ages.get(age).cloned()
    }

    /// The record of `key`.
    pub(super) fn get(&self, key: &LockKey, now: Instant) -> Option<Bytes> {
        let kept = self.kept.get(key).filter(|kept| kept.until > now)?;
        Some(kept.value.clone())
    }

    /// Some records that are newer than this age, the oldest first; and the age of the last one that it looked at if there are more.
    pub(super) fn list(
        &self,
        after: Option<u64>,
        limit: usize,
        wanted: impl Fn(&LockKey) -> bool,
        now: Instant,
    ) -> (Vec<RecordEntry>, Option<u64>) {
        let mut entries = Vec::new();
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let newer = self.ages.range((first, Bound::Unbounded));
        for (looks, (age, key)) in (1..).zip(newer) {
            let kept = &self.kept[key];
            if kept.until > now && wanted(key) {
                let size = kept.value.len() as u64;
                entries.push(RecordEntry::new(key.clone(), size, kept.until - now));
            }
            if entries.len() >= limit || looks >= LOOKS {
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
        self.expire(now, usize::MAX);
        self.kept.is_empty()
    }

    /// Removes records that are over, `most` at the most.
    fn expire(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            match self.ends.first() {
                Some((until, age)) if *until <= now => {
                    let key = self.ages[age].clone();
                    self.forget(&key);
                }
                _ => return,
            }
        }
    }

    fn forget(&mut self, key: &LockKey) {
        let Some(kept) = self.kept.remove(key) else {
            return;
        };
        self.size -= kept.cost;
        self.ages.remove(&kept.age);
        self.ends.remove(&(kept.until, kept.age));
        self.resize(&kept.scope, |size, ages| {
            *size -= kept.cost;
            ages.remove(&kept.age);
        });
    }

    /// Changes the sums of a scope, and forgets one without records.
    fn resize(&mut self, scope: &Arc<str>, change: impl FnOnce(&mut usize, &mut BTreeSet<u64>)) {
        let mut size = self.sizes.remove(scope).unwrap_or_default();
        let ages = self.scopes.remove(&(size, scope.clone()));
        let mut ages = ages.unwrap_or_default();
        change(&mut size, &mut ages);
        if !ages.is_empty() {
            self.sizes.insert(scope.clone(), size);
            self.scopes.insert((size, scope.clone()), ages);
        }
    }
}

#[cfg(test)]
#[path = "tests/records.rs"]
mod tests;
