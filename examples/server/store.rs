//! The store of documents, accounts and counts: JSON under a name each, with a version that rises with every change.
//!
//! # Why a lock is not enough
//!
//! A handler can end while its last write is under way: the connection timed out, the client disconnected, the lock was
//! lost. The layer then answers with an error, or not at all, and the next request gets the lock. The write may arrive
//! later, while the next request holds the lock. No lock can prevent that. So each write names the version that its
//! handler has read, and the server compares and writes in one step: a late write finds another version, and changes
//! nothing.
//!
//! A fencing token that the server compares does the same where a write does not depend on what was read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use deadpool_redis::redis::{AsyncCommands, AsyncConnectionConfig, Script};
use deadpool_redis::{Manager, Pool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Writes every value, or none if one of the names has changed since it was read.
///
/// KEYS: the names. ARGV: for each name the text that was read (empty: there was none), then the text to write.
/// Returns 1 if it wrote, 0 if a name has changed.
const WRITE: &str = "
for i = 1, #KEYS do
  if (redis.call('GET', KEYS[i]) or '') ~= ARGV[2 * i - 1] then
    return 0
  end
end
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[2 * i])
end
return 1";

/// How long Redis may take to answer, or to accept a connection: longer than a busy machine takes.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) enum Store {
    Memory(Arc<Mutex<HashMap<String, String>>>),
    Redis(Pool),
}

/// The value of a name.
pub(crate) struct Entry<T> {
    name: String,
    /// The text that was read; empty if there was none.
    read: String,
    /// The number of changes. A removed value keeps its version, so that no version occurs twice.
    pub(crate) version: u64,
    pub(crate) value: Option<T>,
}

/// A value to be written in the place of the one that was read.
pub(crate) struct Change {
    name: String,
    read: String,
    text: String,
}

#[derive(Serialize, Deserialize)]
struct Text<T> {
    version: u64,
    value: Option<T>,
}

impl<T: Serialize> Entry<T> {
    /// Replaces the value; `None` removes it.
    pub(crate) fn change(&self, value: Option<&T>) -> Result<Change, Failure> {
        let version = self.version + 1;
        Ok(Change {
            name: self.name.clone(),
            read: self.read.clone(),
            text: serde_json::to_string(&Text { version, value })?,
        })
    }
}

impl Store {
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) fn in_redis(url: &str) -> anyhow::Result<Self> {
        // By default, half a second without an answer is an error, and so is a connection that takes longer than one.
        let limits = AsyncConnectionConfig::new()
            .set_response_timeout(Some(LIMIT))
            .set_connection_timeout(Some(LIMIT));
        let manager = Manager::new_with_config(url, limits)?;
        Ok(Self::Redis(Pool::builder(manager).build()?))
    }

    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        name: String,
    ) -> Result<Entry<T>, Failure> {
        let read: Option<String> = match self {
            Self::Memory(map) => lock(map).get(&name).cloned(),
            Self::Redis(redis) => redis.get().await?.get(&name).await?,
        };
        let read = read.unwrap_or_default();
        let text = match read.as_str() {
            "" => Text {
                version: 0,
                value: None,
            },
            text => serde_json::from_str(text)?,
        };
        Ok(Entry {
            name,
            read,
            version: text.version,
            value: text.value,
        })
    }

    /// Makes every change, or none.
    ///
    /// Fails with [`Failure::Changed`] if one of the names has changed since it was read.
    pub(crate) async fn write<const N: usize>(&self, changes: [Change; N]) -> Result<(), Failure> {
        let written = match self {
            Self::Memory(map) => write(&mut lock(map), changes),
            Self::Redis(redis) => {
                let script = Script::new(WRITE);
                let mut call = script.prepare_invoke();
                for change in &changes {
                    call.key(&change.name).arg(&change.read).arg(&change.text);
                }
                call.invoke_async(&mut redis.get().await?).await?
            }
        };
        written.then_some(()).ok_or(Failure::Changed)
    }
}

fn write<const N: usize>(map: &mut HashMap<String, String>, changes: [Change; N]) -> bool {
    let unchanged = |change: &Change| match map.get(&change.name) {
        Some(text) => *text == change.read,
        None => change.read.is_empty(),
    };
    let all = changes.iter().all(unchanged);
    if all {
        map.extend(changes.map(|change| (change.name, change.text)));
    }
    all
}

fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a handler could not do its work. The client may try again.
pub(crate) enum Failure {
    /// A write of an earlier request arrived late, between the read and the write of this one.
    Changed,
    /// The store cannot be reached, or a name has a value that this server did not write.
    Store(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let error = match self {
            Self::Changed => "it has changed meanwhile",
            Self::Store(error) => {
                tracing::error!(%error, "the store did not serve");
                "the store cannot be reached"
            }
        };
        let later = [(RETRY_AFTER, "1")];
        let body = Json(json!({ "error": error }));
        (StatusCode::SERVICE_UNAVAILABLE, later, body).into_response()
    }
}
