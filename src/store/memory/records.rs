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
/// `ages`, `ends` and the `ages` of all `scopes` name the same records; `size`, the sizes of `scopes` and `by_size` are the sums of
/// their costs; and `size` is more than `limit` only while there is just one record.
pub(super) struct Records {
    limit: usize,
    size: usize,
    kept: KeyMap<StoredRecord>,
    /// The keys in the order in which their records were kept.
    ages: BTreeMap<u64, LockKey>,
    /// The ends of the records, the earliest first.
    ends: BTreeSet<(Instant, u64)>,
    scopes: HashMap<Arc<str>, ScopeRecords>,
    /// The scopes, the largest last.
    by_size: BTreeSet<(usize, Arc<str>)>,
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

#[derive(Default)]
struct ScopeRecords {
    size: usize,
    ages: BTreeSet<u64>,
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
            scopes: HashMap::new(),
            by_size: BTreeSet::new(),
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
        self.resize(&kept.scope, |scope| {
            scope.size += cost;
            scope.ages.insert(age);
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
        let scopes = self.by_size.iter().rev();
        let mut oldest = scopes.filter_map(|(_, scope)| self.scopes[scope].ages.first());
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
        self.resize(&kept.scope, |scope| {
            scope.size -= kept.cost;
            scope.ages.remove(&kept.age);
        });
    }

    /// Changes the sums of a scope, and forgets one without records.
    fn resize(&mut self, scope: &Arc<str>, change: impl FnOnce(&mut ScopeRecords)) {
        let records = self.scopes.entry(scope.clone()).or_default();
        self.by_size.remove(&(records.size, scope.clone()));
        change(records);
        match records.ages.is_empty() {
            true => drop(self.scopes.remove(scope)),
            false => drop(self.by_size.insert((records.size, scope.clone()))),
        }
    }
}

#[cfg(test)]
#[path = "tests/records.rs"]
mod tests;
