//! Finished records that the process remembers by itself.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::limits;
use crate::lock::LockKey;
use crate::sync::Mutex;

/// How long a record from the store is remembered: the store does not say when its retention ends.
const READ: Duration = Duration::from_secs(60);

/// The latest records, at most `limit` of them. A record does not change, so a copy of it answers as well.
///
/// The mutex protects the records and the order in which they came, the oldest first. Each record is in both. One whose time is
/// over stays until its turn, and is not returned.
#[derive(Debug, Default)]
pub(super) struct LocalRecords {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<LockKey, (Bytes, Instant)>,
    order: VecDeque<LockKey>,
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
        let (record, until) = state.records.get(name)?;
        (Instant::now() < *until).then(|| record.clone())
    }

    /// Remembers a record that the store has recorded since `began`.
    pub(super) fn recorded(
        &self,
        name: &LockKey,
        record: Bytes,
        began: Instant,
        retention: Duration,
    ) {
        self.insert(name, record, limits::after(began, retention));
    }

    /// Remembers a record that the store has returned.
    pub(super) fn read(&self, name: &LockKey, record: Bytes, retention: Duration) {
        self.insert(
            name,
            record,
            limits::after(Instant::now(), retention.min(READ)),
        );
    }

    fn insert(&self, name: &LockKey, record: Bytes, until: Instant) {
        if self.limit == 0 {
            return;
        }
        let state = &mut *self.state.lock();
        if state
            .records
            .insert(name.clone(), (record, until))
            .is_none()
        {
            state.order.push_back(name.clone());
        }
        if state.order.len() > self.limit
            && let Some(oldest) = state.order.pop_front()
        {
            state.records.remove(&oldest);
        }
    }
}
