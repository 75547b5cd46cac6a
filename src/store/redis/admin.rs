//! Administration: holders and waiters of Redisson and of this crate.

use std::num::NonZeroU32;
use std::time::Duration;

use redis::Value;
use uuid::Uuid;

use super::RedisStore;
use super::channels::Channels;
use super::names::Names;
use super::reply::{array, conflict, status, text, unexpected_reply};
use super::script::{self, Call};
use crate::error::StoreError;
use crate::lock::{LockKey, LockMode};
use crate::store::{
    HoldStatus, Holder, Inspect, Inspection, ListQuery, LockEntry, Page, ProcessInfo, RecordEntry,
};

/// The code of the administrating scripts for a key that is not a lock.
const NO_LOCK: i64 = 3;

impl Inspect for RedisStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        match self.call(key, |_| Ok(inspect(key))).await? {
            Value::Int(NO_LOCK) => Err(no_lock()),
            answer => inspection(&answer).ok_or_else(|| unexpected_reply(&answer)),
        }
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        match self.call(key, |publish| Ok(force(key, publish))).await? {
            Value::Int(NO_LOCK) => Err(no_lock()),
            answer => Ok(status(&answer)? == HoldStatus::Held),
        }
    }

    async fn set_permits(
        &self,
        key: &LockKey,
        limit: Option<NonZeroU32>,
    ) -> Result<(), StoreError> {
        let call = |publish| Ok(set_permits(key, limit, publish));
        match self.call(key, call).await? {
            Value::Int(NO_LOCK) => Err(no_lock()),
            answer => status(&answer).map(drop),
        }
    }

    async fn list_locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, StoreError> {
        self.walk_locks(query).await
    }

    async fn list_records(&self, query: &ListQuery) -> Result<Page<RecordEntry>, StoreError> {
        self.walk_records(query).await
    }

    async fn forget_record(&self, key: &LockKey) -> Result<bool, StoreError> {
        let call = script::FORGET.call([Names::of(key).record()]);
        let answer = self.call(key, |_| Ok(call)).await?;
        Ok(status(&answer)? == HoldStatus::Held)
    }

    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        self.keep_process(client, process, lifetime).await
    }

    async fn processes(&self, clients: &[Uuid]) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        self.look_up_processes(clients).await
    }
}

fn inspect(key: &LockKey) -> Call {
    let names = Names::of(key);
    let keys = [
        names.lock(),
        names.queue(),
        names.timeouts(),
        names.alive(),
        names.passes(),
        names.waiting_writers(),
        names.waiting_readers(),
        names.permits(),
    ];
    script::INSPECT.call(keys).arg(names.readers_prefix())
}

fn force(key: &LockKey, publish: Channels) -> Call {
    let names = Names::of(key);
    let keys = [
        names.lock(),
        names.channel(),
        names.queue(),
        names.timeouts(),
        names.alive(),
        names.rw_channel(),
        names.waiting_readers(),
        names.passes(),
        names.waiting_writers(),
        names.line(),
        names.permits(),
        names.permit_channel(),
    ];
    script::FORCE.call(keys).arg(publish)
}

fn set_permits(key: &LockKey, limit: Option<NonZeroU32>, publish: Channels) -> Call {
    let names = Names::of(key);
    let keys = [
        names.lock(),
        names.permits(),
        names.permit_channel(),
        names.set_limit(),
        names.waiting_writers(),
        names.line(),
    ];
    let limit = limit.map_or(0, NonZeroU32::get);
    script::PERMIT_SET.call(keys).arg((limit, publish))
}

fn inspection(answer: &Value) -> Option<Inspection> {
    let [holders, waiters, Value::Int(more), Value::Int(limit)] = array(answer)? else {
        return None;
    };
    let limit = u32::try_from(*limit).ok().and_then(NonZeroU32::new);
    let holder = |answer| holder(answer, limit);
    Some(Inspection {
        holders: array(holders)?.iter().map(holder).collect::<Option<_>>()?,
        waiters: array(waiters)?.iter().map(text).collect::<Option<_>>()?,
        truncated: *more == 1,
        limit: limit.map(NonZeroU32::get),
    })
}

fn holder(answer: &Value, limit: Option<NonZeroU32>) -> Option<Holder> {
    let [id, mode, Value::Int(count), Value::Int(left)] = array(answer)? else {
        return None;
    };
    let mode = match &*text(mode)? {
        "exclusive" => LockMode::Reentrant,
        "read" => LockMode::Read,
        "write" => LockMode::Write,
        // More are held than there are permits after a limit of one was lowered.
        "permit" => LockMode::Permit(limit.unwrap_or(NonZeroU32::MIN)),
        _ => return None,
    };
    let id = match mode {
        LockMode::Permit(_) => permit(id)?,
        _ => text(id)?,
    };
    Some(Holder::new(id, mode, lifetime(*left)).count(u64::try_from(*count).ok()?))
}

/// A negative number means no expiry.
pub(super) fn lifetime(millis: i64) -> Duration {
    u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
}

/// The name of a permit: ours is a hold id, Redisson's are bytes, which Redisson shows in hexadecimal.
fn permit(value: &Value) -> Option<String> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    match bytes.len() {
        16 => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => text(value),
    }
}

fn no_lock() -> StoreError {
    conflict("the key holds data that is no lock")
}
