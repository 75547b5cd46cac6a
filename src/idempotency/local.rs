//! Finished records that the process remembers by itself.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::lock::LockKey;
use crate::sync::Mutex;

/// How long a record from the store is remembered: the store does not say when its retention ends.
pub(super) const READ: Duration = Duration::from_secs(60);

/// The latest records, at most `limit` of them. A record does not change, so a copy of it answers as well.
///
/// The mutex protects the records and the order in which they were remembered, the oldest first. Each record is in both, under the
/// same number. One whose time is over stays until its turn, and is not returned.
#[derive(Debug, Default)]
pub(super) struct LocalRecords {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<LockKey, Remembered>,
    order: BTreeMap<u64, LockKey>,
    /// The number of the next record.
    next: u64,
}

#[derive(Debug)]
struct Remembered {
    record: Bytes,
    until: Instant,
    number: u64,
}

impl LocalRecords {
    pub(super) fn new(limit: usize) -> Self {
        let state = Mutex::default();
        Self { limit, state }
    }

    pub(super) fn get(&self, name: &LockKey) -> Option<Bytes> {
        if self.limit == 0 {
            return None;
        }
        let state = self.state.lock();
        let known = state.records.get(name)?;
        (Instant::now() < known.until).then(|| known.record.clone())
    }

    /// Remembers a record until then, in place of an earlier one of the name.
    pub(super) fn remember(&self, name: &LockKey, record: Bytes, until: Instant) {
        if self.limit == 0 {
            return;
        }
        let state = &mut *self.state.lock();
        let number = state.next;
        state.next += 1;
        let newest = Remembered {
            record,
            until,
            number,
        };
        if let Some(before) = state.records.insert(name.clone(), newest) {
            state.order.remove(&before.number);
        }
        state.order.insert(number, name.clone());
        if state.order.len() > self.limit
            && let Some((_, oldest)) = state.order.pop_first()
        {
            state.records.remove(&oldest);
        }
    }
}
