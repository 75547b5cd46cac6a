//! Lists the keys of all servers, page by page.

use std::sync::Arc;

use redis::Value;

use super::RedisStore;
use super::admin::lifetime;
use super::connection::SharedConnection;
use super::failure;
use super::names::Names;
use super::reply::{array, text, unexpected_reply};
use super::script;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{LockKey, LockMode};
use crate::store::listing::{each, foreign_cursor};
use crate::store::{Cursor, Holder, Inspect, ListQuery, LockEntry, LockStore, Page, RecordEntry};

/// How many keys one `SCAN` examines.
const STEP: usize = 500;

/// The largest number of `SCAN`s for one page.
const STEPS: usize = 16;

/// The first and the last cursor of a `SCAN`.
const END: &str = "0";

/// A server, and its name in cursors.
type Server = (String, Arc<SharedConnection>);

/// The type and the names of the keys that a `SCAN` returns.
struct Search {
    kind: &'static str,
    pattern: String,
}

/// The type of the keys of locks.
const LOCKS: &str = "hash";

/// The type of the keys that have the permits that are held.
const PERMITS: &str = "zset";

/// The type of the keys of records.
const RECORDS: &str = "string";

/// A `SCAN` over the keys of all servers, one after the other; several `SCAN`s, if there are several searches.
struct Walk {
    servers: Vec<Server>,
    searches: Vec<Search>,
    at: Place,
    steps: usize,
}

/// The position of a walk.
struct Place {
    /// The index of the current server; past the last one at the end.
    server: usize,
    /// The index of the current search on that server.
    search: usize,
    /// That search's own cursor.
    cursor: String,
}

impl RedisStore {
    pub(super) async fn walk_locks(
        &self,
        query: &ListQuery,
    ) -> Result<Page<LockEntry>, StoreError> {
        let prefix = literally(&query.prefix);
        let searches = [
            (LOCKS, format!("{prefix}*")),
            (PERMITS, format!("*{prefix}*{}", Names::PERMITS)),
        ];
        let mut walk = self.walk(query, searches).await?;
        let mut entries = Vec::new();
        while entries.len() < query.limit
            && let Some((kind, names)) = walk.step().await?
        {
            let keys: Vec<_> = match kind {
                PERMITS => names
                    .iter()
                    .flat_map(|name| Names::permitted(name))
                    .collect(),
                _ => names.into_iter().map(LockKey::from).collect(),
            };
            let keys = keys.into_iter().filter(|key| self.is_listed(query, key));
            let look = |key| self.held(key, kind == PERMITS);
            entries.extend(each(keys.collect(), look).await?);
        }
        Ok(Page::new(entries, walk.position()))
    }

    pub(super) async fn walk_records(
        &self,
        query: &ListQuery,
    ) -> Result<Page<RecordEntry>, StoreError> {
        // A name with a hash tag of its own has no further braces in the key.
        let pattern = format!("{}*{}*", Names::RECORDS, literally(&query.prefix));
        let mut walk = self.walk(query, [(RECORDS, pattern)]).await?;
        let mut entries = Vec::new();
        while entries.len() < query.limit
            && let Some((_, names)) = walk.step().await?
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
        searches: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Walk, StoreError> {
        let servers = self.inner.router.servers().await?;
        let search = |(kind, pattern)| Search { kind, pattern };
        let searches: Vec<_> = searches.into_iter().map(search).collect();
        Ok(Walk {
            at: Place::of(query, &servers, &searches)?,
            servers,
            searches,
            steps: 0,
        })
    }

    fn is_listed(&self, query: &ListQuery, key: &LockKey) -> bool {
        key.as_str().starts_with(&query.prefix) && self.partition(key).is_ok()
    }

    /// `None` if the key has no holder, or is not a lock, or its holders are of the other search.
    async fn held(&self, key: LockKey, permits: bool) -> Result<Option<LockEntry>, StoreError> {
        let is_permit = |holder: &Holder| matches!(holder.mode, LockMode::Permit(_));
        match self.inspect(&key).await {
            Ok(inspection) => {
                let mut holders = inspection.holders.iter();
                let found = holders.any(|holder| is_permit(holder) == permits);
                Ok(found.then(|| LockEntry::new(key, inspection)))
            }
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
            _ => Err(unexpected_reply(&answer)),
        }
    }
}

impl Walk {
    /// The type and the names of the next keys; `None` at the end, or after [`STEPS`] `SCAN`s.
    async fn step(&mut self) -> Result<Option<(&'static str, Vec<String>)>, StoreError> {
        let Some((_, connection)) = self.servers.get(self.at.server) else {
            return Ok(None);
        };
        if self.steps == STEPS {
            return Ok(None);
        }
        self.steps += 1;
        let search = &self.searches[self.at.search];
        let answer = match connection.query(&search.scan(&self.at.cursor)).await? {
            Value::ServerError(error) => return Err(failure::refusal(error)),
            answer => answer,
        };
        let (next, names) = read(&answer).ok_or_else(|| unexpected_reply(&answer))?;
        let kind = search.kind;
        if next == END {
            self.at.search += 1;
        }
        if self.at.search == self.searches.len() {
            self.at.search = 0;
            self.at.server += 1;
        }
        self.at.cursor = next;
        Ok(Some((kind, names)))
    }

    /// The start of the next page; `None` at the end.
    fn position(&self) -> Option<Cursor> {
        let (server, _) = self.servers.get(self.at.server)?;
        let (kind, cursor) = (self.searches[self.at.search].kind, &self.at.cursor);
        Some(Cursor::new(format!("{server}/{kind}:{cursor}")))
    }
}

impl Search {
    fn scan(&self, cursor: &str) -> redis::Cmd {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(STEP).arg("TYPE").arg(self.kind);
        scan
    }
}

impl Place {
    /// The start of a page. If its server is gone, the next one follows.
    fn of(query: &ListQuery, servers: &[Server], searches: &[Search]) -> Result<Self, StoreError> {
        let first = |server| Self {
            server,
            search: 0,
            cursor: END.to_owned(),
        };
        let Some(text) = query.position() else {
            return Ok(first(0));
        };
        let (name, rest) = text.rsplit_once('/').ok_or_else(foreign_cursor)?;
        let (kind, cursor) = rest.split_once(':').ok_or_else(foreign_cursor)?;
        let mut kinds = searches.iter().map(|search| search.kind);
        let search = kinds.position(|other| other == kind);
        let search = search.ok_or_else(foreign_cursor)?;
        if cursor.is_empty() || !cursor.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(foreign_cursor());
        }
        let server = servers.partition_point(|(other, _)| **other < *name);
        let is_there = servers.get(server).is_some_and(|(other, _)| other == name);
        Ok(match is_there {
            true => Self {
                server,
                search,
                cursor: cursor.to_owned(),
            },
            false => first(server),
        })
    }
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

    #[test]
    fn a_key_is_read_from_the_name_of_its_permits() {
        for name in ["n", "{n}", "a{n}b", "order:42", "{a}{b}"] {
            let key = LockKey::new(name);
            let permits = Names::of(&key).permits().to_string();
            assert!(
                Names::permitted(&permits).any(|other| other == key),
                "{name}"
            );
        }
        // Two keys have this name: Redisson's.
        assert_eq!(Names::permitted("{n}:timeout").count(), 2);
        for name in ["n:timeout", "{n}:timeouts", "{n}"] {
            assert_eq!(Names::permitted(name).count(), 0, "{name}");
        }
    }
}
