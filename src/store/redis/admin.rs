//! Administration: Redisson's holders and waiters, and ours.

use std::time::Duration;

use redis::Value;

use super::RedisStore;
use super::channels::Channels;
use super::names::Names;
use super::reply::{conflict, standing, unintelligible};
use super::script::{self, Call};
use crate::error::StoreError;
use crate::lock::{LockKey, LockMode};
use crate::store::{
    HoldStatus, Holder, Inspect, Inspection, ListQuery, LockEntry, Page, RecordEntry,
};

/// The code of the administrating scripts for what is no lock.
pub(super) const NO_LOCK: i64 = 3;

impl Inspect for RedisStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        match self.call(key, |_| Ok(inspect(key))).await? {
            Value::Int(NO_LOCK) => Err(no_lock()),
            answer => inspection(&answer).ok_or_else(|| unintelligible(&answer)),
        }
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        match self.call(key, |publish| Ok(force(key, publish))).await? {
            Value::Int(NO_LOCK) => Err(no_lock()),
            answer => Ok(standing(&answer)? == HoldStatus::Held),
        }
    }

    async fn list_locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, StoreError> {
        self.walk_locks(query).await
    }

    async fn list_records(&self, query: &ListQuery) -> Result<Page<RecordEntry>, StoreError> {
        self.walk_records(query).await
    }

    async fn forget_record(&self, key: &LockKey) -> Result<bool, StoreError> {
        let names = Names::of(key);
        let call = script::FORGET.call(names, 1, 0).arg(names.record());
        let answer = self.call(key, |_| Ok(call)).await?;
        Ok(standing(&answer)? == HoldStatus::Held)
    }
}

pub(super) fn inspect(key: &LockKey) -> Call {
    let names = Names::of(key);
    script::INSPECT
        .call(names, 7, 1)
        .arg(names.lock())
        .arg(names.queue())
        .arg(names.timeouts())
        .arg(names.alive())
        .arg(names.passes())
        .arg(names.waiting_writers())
        .arg(names.waiting_readers())
        .arg(names.readers_prefix())
}

fn force(key: &LockKey, publish: Channels) -> Call {
    let names = Names::of(key);
    script::FORCE
        .call(names, 10, 4)
        .arg(names.lock())
        .arg(names.channel())
        .arg(names.queue())
        .arg(names.timeouts())
        .arg(names.alive())
        .arg(names.rw_channel())
        .arg(names.waiting_readers())
        .arg(names.passes())
        .arg(names.waiting_writers())
        .arg(names.line())
        .arg(publish)
        .arg(names.readers_prefix())
        .arg(names.turn())
        .arg(names.enter())
}

pub(super) fn inspection(answer: &Value) -> Option<Inspection> {
    let [holders, waiters, Value::Int(more)] = array(answer)? else {
        return None;
    };
    Some(Inspection {
        holders: array(holders)?.iter().map(holder).collect::<Option<_>>()?,
        waiters: array(waiters)?.iter().map(text).collect::<Option<_>>()?,
        truncated: *more == 1,
    })
}

fn holder(answer: &Value) -> Option<Holder> {
    let [id, mode, Value::Int(count), Value::Int(left)] = array(answer)? else {
        return None;
    };
    let mode = match &*text(mode)? {
        "exclusive" => LockMode::Reentrant,
        "read" => LockMode::Read,
        "write" => LockMode::Write,
        _ => return None,
    };
    Some(Holder::new(text(id)?, mode, lifetime(*left)).count(u64::try_from(*count).ok()?))
}

/// A life without end is told by a negative number.
pub(super) fn lifetime(millis: i64) -> Duration {
    u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
}

pub(super) fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// A name in the store; what is no text in it is shown as such.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn no_lock() -> StoreError {
    conflict("the key holds a hash that is no lock")
}
