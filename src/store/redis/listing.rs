//! Lists the keys of all servers, page by page.

use std::sync::Arc;

use redis::Value;

use super::RedisStore;
use super::admin::{array, lifetime, text};
use super::connection::SharedConnection;
use super::failure;
use super::names::Names;
use super::reply::unintelligible;
use super::script;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::listing::{each, foreign_cursor};
use crate::store::{Cursor, Inspect, ListQuery, LockEntry, LockStore, Page, RecordEntry};

/// How many keys one `SCAN` examines.
const STEP: usize = 500;

/// The largest number of `SCAN`s for one page.
const STEPS: usize = 16;

/// The first and the last cursor of a `SCAN`.
const END: &str = "0";

/// A server, and its name in cursors.
type Server = (String, Arc<SharedConnection>);

/// A `SCAN` over the keys of all servers, one after the other.
struct Walk {
    servers: Vec<Server>,
    /// The index of the current server; past the last one at the end.
    place: usize,
    /// That server's own cursor.
    cursor: String,
    steps: usize,
    pattern: String,
    kind: &'static str,
}

impl RedisStore {
    pub(super) async fn walk_locks(
        &self,
        query: &ListQuery,
    ) -> Result<Page<LockEntry>, StoreError> {
        let pattern = format!("{}*", literally(&query.prefix));
        let mut walk = self.walk(query, pattern, "hash").await?;
        let mut entries = Vec::new();
        while entries.len() < query.limit
            && let Some(names) = walk.step().await?
        {
            let keys = names.into_iter().map(LockKey::from);
            let keys = keys.filter(|key| self.is_listed(query, key));
            entries.extend(each(keys.collect(), |key| self.held(key)).await?);
        }
        Ok(Page::new(entries, walk.position()))
    }

    pub(super) async fn walk_records(
        &self,
        query: &ListQuery,
    ) -> Result<Page<RecordEntry>, StoreError> {
        // A name with a hash tag of its own has no further braces in the key.
        let pattern = format!("{}*{}*", Names::RECORDS, literally(&query.prefix));
        let mut walk = self.walk(query, pattern, "string").await?;
        let mut entries = Vec::new();
        while entries.len() < query.limit
            && let Some(names) = walk.step().await?
        {
            let keys = names.iter().filter_map(|name| Names::recorded(name));
            let keys = keys.filter(|key| self.is_listed(query, key));
            entries.extend(each(keys.collect(), |key| self.remembered(key)).await?);
        }
        Ok(Page::new(entries, walk.position()))
    }

    async fn walk(
        &self,
        query: &ListQuery,
        pattern: String,
        kind: &'static str,
    ) -> Result<Walk, StoreError> {
        let servers = self.inner.router.servers().await?;
        let (place, cursor) = begin(query, &servers)?;
        Ok(Walk {
            servers,
            place,
            cursor,
            steps: 0,
            pattern,
            kind,
        })
    }

    fn is_listed(&self, query: &ListQuery, key: &LockKey) -> bool {
        key.as_str().starts_with(&query.prefix) && self.partition(key).is_ok()
    }

    /// `None` if the lock is free, or the key is not a lock.
    async fn held(&self, key: LockKey) -> Result<Option<LockEntry>, StoreError> {
        match self.inspect(&key).await {
            Ok(inspection) => Ok(inspection
                .is_held()
                .then(|| LockEntry::new(key, inspection))),
            // Also if the key was a hash only when its type was read.
            Err(error) if error.kind() == StoreErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn remembered(&self, key: LockKey) -> Result<Option<RecordEntry>, StoreError> {
        let call = script::RECORD_SIZE.call([Names::of(&key).record()]);
        let answer = self.call(&key, |_| Ok(call)).await?;
        match array(&answer) {
            Some([Value::Int(_), Value::Int(-2)]) => Ok(None),
            Some([Value::Int(size), Value::Int(left)]) => {
                let size = u64::try_from(*size).unwrap_or_default();
                Ok(Some(RecordEntry::new(key, size, lifetime(*left))))
            }
            _ => Err(unintelligible(&answer)),
        }
    }
}

impl Walk {
    /// The names of the next keys; `None` at the end, or after [`STEPS`] `SCAN`s.
    async fn step(&mut self) -> Result<Option<Vec<String>>, StoreError> {
        let Some((_, connection)) = self.servers.get(self.place) else {
            return Ok(None);
        };
        if self.steps == STEPS {
            return Ok(None);
        }
        self.steps += 1;
        let answer = match connection.query(&self.scan()).await? {
            Value::ServerError(error) => return Err(failure::refusal(error)),
            answer => answer,
        };
        let (next, names) = read(&answer).ok_or_else(|| unintelligible(&answer))?;
        self.place += usize::from(next == END);
        self.cursor = next;
        Ok(Some(names))
    }

    fn scan(&self) -> redis::Cmd {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&self.cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(STEP).arg("TYPE").arg(self.kind);
        scan
    }

    /// The start of the next page; `None` at the end.
    fn position(&self) -> Option<Cursor> {
        let (server, _) = self.servers.get(self.place)?;
        Some(Cursor::new(format!("{server}/{}", self.cursor)))
    }
}

/// The server to continue with, and its cursor. If that server is gone, the next one follows.
fn begin(query: &ListQuery, servers: &[Server]) -> Result<(usize, String), StoreError> {
    let Some(text) = query.position() else {
        return Ok((0, END.to_owned()));
    };
    let (server, cursor) = text.rsplit_once('/').ok_or_else(foreign_cursor)?;
    if cursor.is_empty() || !cursor.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(foreign_cursor());
    }
    let place = servers.partition_point(|(name, _)| **name < *server);
    let is_there = servers.get(place).is_some_and(|(name, _)| name == server);
    Ok((place, if is_there { cursor } else { END }.to_owned()))
}

/// The next cursor, and the keys. Keys that are not UTF-8 are not keys of this crate and are
/// skipped.
fn read(answer: &Value) -> Option<(String, Vec<String>)> {
    let [cursor, names] = array(answer)? else {
        return None;
    };
    let name = |name: &Value| match name {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    Some((
        text(cursor)?,
        array(names)?.iter().filter_map(name).collect(),
    ))
}

/// A pattern that matches exactly this text.
fn literally(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_literally() {
        assert_eq!(literally("lock:a*[b]?\\"), "lock:a\\*\\[b\\]\\?\\\\");
    }

    #[test]
    fn a_key_is_read_from_the_name_of_its_record() {
        for name in ["n", "a{n}b", "order:42"] {
            let key = LockKey::new(name);
            let record = Names::of(&key).record().to_string();
            assert_eq!(Names::recorded(&record), Some(key));
        }
        assert_eq!(Names::recorded("tower_lock_recorder"), None);
    }
}
