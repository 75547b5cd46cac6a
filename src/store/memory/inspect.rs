//! Inspection of the memory store.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::MemoryStore;
use crate::error::StoreError;
use crate::limits::after;
use crate::lock::LockKey;
use crate::store::listing::foreign_cursor;
use crate::store::{Inspect, Inspection, ListQuery, LockEntry, Page, ProcessInfo, RecordEntry};

/// How often a page of a list locks a shard, to look at some of its keys.
const LOOKS: usize = 128;

/// The entries of clients, each with the time until which it is kept. A new entry removes those that are over.
pub(super) type Processes = HashMap<Uuid, (ProcessInfo, Instant)>;

impl Inspect for MemoryStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        Ok(self.change(key, |key, now| key.state.inspect(now)))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let signals = self.change(key, |key, _| {
            let wake = key.state.force()?;
            Some(key.signals(&wake))
        });
        let forced = signals.is_some();
        signals.unwrap_or_default().send();
        Ok(forced)
    }

    async fn set_permits(
        &self,
        key: &LockKey,
        limit: Option<NonZeroU32>,
    ) -> Result<(), StoreError> {
        let signals = self.change(key, |key, _| {
            let wake = key.state.set_permits(limit)?;
            Ok::<_, StoreError>(key.signals(&wake))
        })?;
        signals.send();
        Ok(())
    }

    /// Shard by shard, and some keys at a time, so that no request waits for a list.
    async fn list_locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, StoreError> {
        let wanted = |key: &LockKey| key.as_str().starts_with(&query.prefix);
        let place = query.after.as_deref().map(str::parse::<u64>).transpose();
        let place = place.map_err(|_| foreign_cursor())?;
        let place = place.unwrap_or(u64::from(u32::MAX));
        let (mut shard, mut end) = ((place >> 32) as usize, place as u32 as usize);
        let mut entries = Vec::new();
        for _ in 0..LOOKS {
            let Some(keys) = self.shared.shards.get(shard) else {
                return Ok(Page::new(entries, None));
            };
            end = keys.lock().list(end, wanted, &mut entries, query.limit);
            if end == 0 {
                (shard, end) = (shard + 1, u32::MAX as usize);
            }
            if entries.len() >= query.limit {
                break;
            }
        }
        let next = (shard as u64) << 32 | end as u64;
        Ok(Page::new(entries, Some(next.to_string())))
    }

    async fn list_records(&self, query: &ListQuery) -> Result<Page<RecordEntry>, StoreError> {
        let after = query.after.as_deref().map(str::parse).transpose();
        let after = after.map_err(|_| foreign_cursor())?;
        let wanted = |key: &LockKey| key.as_str().starts_with(&query.prefix);
        let records = self.shared.records.lock();
        let (entries, last) = records.list(after, query.limit, wanted, Instant::now());
        Ok(Page::new(entries, last.map(|age| age.to_string())))
    }

    async fn forget_record(&self, key: &LockKey) -> Result<bool, StoreError> {
        Ok(self.shared.records.lock().remove(key, Instant::now()))
    }

    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let (mut processes, now) = (self.shared.processes.lock(), Instant::now());
        processes.insert(client, (process.clone(), after(now, lifetime)));
        // Also this one, if its lifetime is zero.
        processes.retain(|_, (_, until)| *until > now);
        Ok(())
    }

    async fn processes(&self, clients: &[Uuid]) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        let (processes, now) = (self.shared.processes.lock(), Instant::now());
        let entry = |client| {
            let (process, until) = processes.get(client)?;
            (*until > now).then(|| process.clone())
        };
        Ok(clients.iter().map(entry).collect())
    }
}
