//! Inspection of the memory store.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{MemoryStore, SHARDS, lock};
use crate::error::StoreError;
use crate::limits::after;
use crate::lock::LockKey;
use crate::store::listing::foreign_cursor;
use crate::store::{
    Cursor, Inspect, Inspection, ListQuery, LockEntry, Page, ProcessInfo, RecordEntry,
};

/// The entries of clients, each with the time until which it is kept. A new entry removes those that are over.
pub(super) type Processes = HashMap<Uuid, (ProcessInfo, Instant)>;

impl Inspect for MemoryStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let mut shard = self.shared.shard(key);
        Ok(shard.change(key, |entry, now| entry.state.inspect(now)))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let signals = self.shared.shard(key).change(key, |entry, _| {
            let wake = entry.state.force()?;
            Some(entry.listeners.signals(&wake))
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
        let signals = self.shared.shard(key).change(key, |entry, _| {
            let wake = entry.state.set_permits(limit)?;
            Ok::<_, StoreError>(entry.listeners.signals(&wake))
        })?;
        signals.send();
        Ok(())
    }

    /// Shard by shard, and within a shard by name.
    async fn list_locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, StoreError> {
        let (first, after) = position(query)?;
        let mut entries = Vec::new();
        for place in first..SHARDS {
            let wanted = |key: &LockKey| {
                let name = key.as_str();
                let is_new = place > first || after.is_none_or(|after| name > after);
                name.starts_with(&query.prefix) && is_new
            };
            let held = lock(&self.shared.shards[place]).held(wanted);
            let room = query.limit - entries.len();
            let is_cut = held.len() > room;
            entries.extend(held.into_iter().take(room));
            let next = match entries.last() {
                Some(last) if is_cut => format!("{place}/{}", last.key.as_str()),
                _ if entries.len() == query.limit => format!("{}/", place + 1),
                _ => continue,
            };
            return Ok(Page::new(entries, Some(Cursor::new(next))));
        }
        Ok(Page::new(entries, None))
    }

    async fn list_records(&self, query: &ListQuery) -> Result<Page<RecordEntry>, StoreError> {
        let after = query.position().map(str::parse).transpose();
        let after = after.map_err(|_| foreign_cursor())?;
        let wanted = |key: &LockKey| key.as_str().starts_with(&query.prefix);
        let records = lock(&self.shared.records);
        let (entries, last) = records.list(after, query.limit, wanted, Instant::now());
        Ok(Page::new(
            entries,
            last.map(|age| Cursor::new(age.to_string())),
        ))
    }

    async fn forget_record(&self, key: &LockKey) -> Result<bool, StoreError> {
        Ok(lock(&self.shared.records).remove(key, Instant::now()))
    }

    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let (mut processes, now) = (lock(&self.shared.processes), Instant::now());
        processes.insert(client, (process.clone(), after(now, lifetime)));
        // Also this one, if its lifetime is zero.
        processes.retain(|_, (_, until)| *until > now);
        Ok(())
    }

    async fn processes(&self, clients: &[Uuid]) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        let (processes, now) = (lock(&self.shared.processes), Instant::now());
        let entry = |client| {
            let (process, until) = processes.get(client)?;
            (*until > now).then(|| process.clone())
        };
        Ok(clients.iter().map(entry).collect())
    }
}

/// The first shard, and the last name that was listed of it.
fn position(query: &ListQuery) -> Result<(usize, Option<&str>), StoreError> {
    let Some(text) = query.position() else {
        return Ok((0, None));
    };
    let (place, last) = text.split_once('/').ok_or_else(foreign_cursor)?;
    let place = place.parse().map_err(|_| foreign_cursor())?;
    Ok((place, Some(last).filter(|last| !last.is_empty())))
}
