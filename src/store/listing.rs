//! Lists of locks and records, page by page.

use std::time::Duration;

use serde::Serialize;

use super::inspection::{Inspection, millis};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;

/// Selects the keys of a list, and the length of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListQuery {
    /// The prefix of the keys' names.
    pub prefix: String,
    /// About how many entries a page has. A page may have a few more.
    pub limit: usize,
    /// The [end](Page::next) of the previous page; `None`: the first page.
    pub after: Option<String>,
}

impl ListQuery {
    /// The first page of all keys, with 100 entries.
    pub fn new() -> Self {
        Self {
            prefix: String::new(),
            limit: 100,
            after: None,
        }
    }

    /// Lists only keys whose names begin with `prefix`, such as `lock:order:`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many entries a page has, about: 1 to 1000.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.clamp(1, 1000);
        self
    }

    /// The page after that which ended at `cursor`; [`None`]: the first page.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<Option<String>>) -> Self {
        self.after = cursor.into();
        self
    }
}

impl Default for ListQuery {
    fn default() -> Self {
        Self::new()
    }
}

/// One page of a list.
///
/// A page takes a bounded time, whatever the number of keys. It may be empty although [`next`](Self::next) is `Some`. A key
/// that exists during the whole list is listed at least once, unless it is [left out](Self::left_out). A key that is added or
/// removed meanwhile may be listed or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// In no particular order.
    pub entries: Vec<T>,
    /// What could not be listed, with the reason, in a text for operators: a server of a Cluster that is down, or a key whose slot is
    /// being moved. The list goes on without it.
    pub left_out: Vec<String>,
    /// The start of the next page, in a text that only the store understands; `None`: this is the last page.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A page, and the start of the next one.
    pub fn new(entries: Vec<T>, next: Option<String>) -> Self {
        Self {
            entries,
            left_out: Vec::new(),
            next,
        }
    }
}

/// A key that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockEntry {
    /// The key.
    pub key: LockKey,
    /// Its holders and its waiting clients.
    #[serde(flatten)]
    pub inspection: Inspection,
}

impl LockEntry {
    /// A key, and its state.
    pub fn new(key: LockKey, inspection: Inspection) -> Self {
        Self { key, inspection }
    }
}

/// A key under which a record is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordEntry {
    /// The key.
    pub key: LockKey,
    /// The size of the record's value, in bytes.
    pub size: u64,
    /// How long the store keeps the record. It is serialized as `remaining_ms`.
    #[serde(rename = "remaining_ms", serialize_with = "millis")]
    pub remaining: Duration,
}

impl RecordEntry {
    /// A record of `size` bytes that the store keeps for `remaining`.
    pub fn new(key: LockKey, size: u64, remaining: Duration) -> Self {
        Self {
            key,
            size,
            remaining,
        }
    }
}

/// The error for a cursor that this store did not make.
pub(super) fn foreign_cursor() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "the cursor is none of this store: begin with the first page",
    )
}
