//! Administration: holders and waiters of Redisson and of this crate.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::Value;
use uuid::Uuid;

use crate::error::StoreError;
use crate::lock::{LockKey, LockMode};
use crate::store::redis::RedisStore;
use crate::store::redis::protocol::calls;
use crate::store::redis::protocol::failure::refused;
use crate::store::redis::protocol::names::{self, Name, RECORD};
use crate::store::redis::protocol::reply::{conflict, read, unexpected_reply};
use crate::store::redis::protocol::script::{Call, ms};
use crate::store::{
    BATCH, Holder, Inspect, Inspection, ListQuery, LockEntry, Page, ProcessInfo, RecordEntry,
};

/// The code of the administrating scripts for a key that is not a lock.
const NOT_A_LOCK: i64 = 3;

impl Inspect for RedisStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let call = |_| calls::inspect(key);
        inspection(about_lock(self.call(key, call).await?)?)
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let call = |publish| calls::force(key, publish);
        read(about_lock(self.call(key, call).await?)?)
    }

    async fn set_permits(
        &self,
        key: &LockKey,
        limit: Option<NonZeroU32>,
    ) -> Result<(), StoreError> {
        let call = |publish| calls::set_permits(key, limit, publish);
        read::<bool>(about_lock(self.call(key, call).await?)?).map(drop)
    }

    async fn list_locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, StoreError> {
        self.walk_locks(query).await
    }

    async fn list_records(&self, query: &ListQuery) -> Result<Page<RecordEntry>, StoreError> {
        self.walk_records(query).await
    }

    async fn forget_record(&self, key: &LockKey) -> Result<bool, StoreError> {
        let call = |_| Call::about("DEL", Name::at(key, RECORD));
        read(self.call(key, call).await?)
    }

    /// A `lifetime` of zero removes the entry.
    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let key = entry(&client);
        let name = Name::lock(&key);
        let value = serde_json::to_vec(process).map_err(refused)?;
        let call = |_| match lifetime.is_zero() {
            true => Call::about("DEL", name),
            false => Call::about("SET", name).arg((&value[..], "PX", ms(lifetime))),
        };
        read::<bool>(self.call(&key, call).await?).map(drop)
    }

    /// An entry that is not one of this crate is skipped.
    async fn processes(&self, clients: &[Uuid]) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        let mut processes = Vec::with_capacity(clients.len());
        // Some at a time: the commands of callers use the same connections.
        for some in clients.chunks(BATCH) {
            let entries = some.iter().map(|client| async {
                let key = entry(client);
                let call = |_| Call::about("GET", Name::lock(&key));
                let value: Option<Vec<u8>> = read(self.call(&key, call).await?)?;
                Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
            });
            processes.extend(try_join_all(entries).await?);
        }
        Ok(processes)
    }
}

/// The key of the entry of a process, in every name space: the id of a holder leads to its process without a further question,
/// and a client cannot guess the ids of others.
fn entry(client: &Uuid) -> LockKey {
    LockKey::new(format!("{}{client}", names::PROCESS))
}

fn inspection(answer: Value) -> Result<Inspection, StoreError> {
    let (holders, waiters, truncated, limit): (Vec<HolderReply>, Vec<Vec<u8>>, bool, i64) =
        read(answer)?;
    let limit = u32::try_from(limit).ok().and_then(NonZeroU32::new);
    let holders = holders.into_iter().map(|one| holder(one, limit));
    Ok(Inspection {
        holders: holders.collect::<Result<_, _>>()?,
        waiters: waiters.iter().map(|id| text(id)).collect(),
        truncated,
        limit: limit.map(NonZeroU32::get),
    })
}

/// The id, the mode, the count and the lifetime in ms.
type HolderReply = (Vec<u8>, String, u64, i64);

fn holder(
    (id, mode, count, left): HolderReply,
    limit: Option<NonZeroU32>,
) -> Result<Holder, StoreError> {
    let mode = match &*mode {
        "exclusive" => LockMode::Reentrant,
        "read" => LockMode::Read,
        "write" => LockMode::Write,
        // More are held than there are permits after a limit of one was lowered.
        "permit" => LockMode::Permit(limit.unwrap_or(NonZeroU32::MIN)),
        _ => return Err(unexpected_reply(&Value::SimpleString(mode))),
    };
    let id = match (mode, id.len()) {
        // A permit of Redisson, which shows it in hexadecimal.
        (LockMode::Permit(_), 16) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        _ => text(&id),
    };
    Ok(Holder::new(id, mode, lifetime(left)).count(count))
}

/// Bytes that are not UTF-8 are replaced.
fn text(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}

/// A negative number means no expiry.
pub(super) fn lifetime(millis: i64) -> Duration {
    u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
}

/// The answer about a key, unless the key is not a lock.
fn about_lock(answer: Value) -> Result<Value, StoreError> {
    match answer {
        Value::Int(NOT_A_LOCK) => Err(conflict("the key holds data that is no lock")),
        answer => Ok(answer),
    }
}
