//! Lists the keys of all servers, page by page.

use std::sync::Arc;

use super::RedisStore;
use super::admin::lifetime;
use super::failure;
use super::link::{Link, Purpose};
use super::names::Names;
use super::reply::read;
use super::script::Call;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::listing::{each, foreign_cursor};
use crate::store::{Inspect, ListQuery, LockEntry, LockStore, Page, RecordEntry};

/// How many keys one `SCAN` examines.
const STEP: usize = 500;

/// The largest number of `SCAN`s for one page.
const STEPS: usize = 16;

/// The first and the last cursor of a `SCAN`.
const END: &str = "0";

/// The type of the keys of locks.
const LOCKS: &str = "hash";

/// The type of the keys that have the permits that are held.
const PERMITS: &str = "zset";

/// The type of the keys of records.
const RECORDS: &str = "string";

/// A `SCAN` over the keys of one server.
struct Search {
    /// The name of the server in cursors.
    server: String,
    connection: Arc<Link>,
    /// The type and the names of the keys.
    kind: &'static str,
    pattern: String,
}

/// Several searches, one after the other.
struct Walk {
    searches: Vec<Search>,
    /// The index of the current search; past the last one at the end.
    current: usize,
    /// The current search's own cursor.
    cursor: String,
    steps: usize,
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
        let mut walk = self.walk(query, &searches).await?;
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
        let mut walk = self.walk(query, &[(RECORDS, pattern)]).await?;
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

    /// Begins where the query's page begins. Each server is searched for all of `searches`.
    async fn walk(
        &self,
        query: &ListQuery,
        searches: &[(&'static str, String)],
    ) -> Result<Walk, StoreError> {
        let servers = self.inner.router.servers().await?;
        let mut all = Vec::new();
        for (server, node) in &servers {
            all.extend(searches.iter().map(|(kind, pattern)| Search {
                server: server.clone(),
                connection: node.first(Purpose::Commands).clone(),
                kind,
                pattern: pattern.clone(),
            }));
        }
        let (current, cursor) = match query.after.as_deref() {
            Some(text) => begin(text, &all).ok_or_else(foreign_cursor)?,
            None => (0, END),
        };
        Ok(Walk {
            current,
            cursor: cursor.to_owned(),
            searches: all,
            steps: 0,
        })
    }

    fn is_listed(&self, query: &ListQuery, key: &LockKey) -> bool {
        key.as_str().starts_with(&query.prefix) && self.partition(key).is_ok()
    }

    /// `None` if the key has no holder, or is not a lock, or its holders are of the other search.
    async fn held(&self, key: LockKey, permits: bool) -> Result<Option<LockEntry>, StoreError> {
        match self.inspect(&key).await {
            Ok(inspection) => {
                let mut holders = inspection.holders.iter();
                let found = holders.any(|holder| holder.mode.is_permit() == permits);
                Ok(found.then(|| LockEntry::new(key, inspection)))
            }
            // Also if the key was a hash only when its type was read.
            Err(error) if error.kind() == StoreErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn remembered(&self, key: LockKey) -> Result<Option<RecordEntry>, StoreError> {
        let ask = |command| Call::about(command, Names::of(&key).record());
        let (size, left) = (ask("STRLEN"), ask("PTTL"));
        let size: u64 = read(self.call(&key, |_| Ok(size)).await?)?;
        let left: i64 = read(self.call(&key, |_| Ok(left)).await?)?;
        // It has expired since.
        let is_gone = left == -2;
        Ok((!is_gone).then(|| RecordEntry::new(key, size, lifetime(left))))
    }
}

impl Walk {
    /// The type and the names of the next keys; `None` at the end, or after [`STEPS`] `SCAN`s. Keys that are not UTF-8 are not
    /// keys of this crate and are skipped.
    async fn step(&mut self) -> Result<Option<(&'static str, Vec<String>)>, StoreError> {
        let search = self.searches.get(self.current);
        let Some(search) = search.filter(|_| self.steps < STEPS) else {
            return Ok(None);
        };
        self.steps += 1;
        let answer = search.connection.query(&search.scan(&self.cursor)).await?;
        let (next, names): (String, Vec<Vec<u8>>) = read(failure::accepted(answer)?)?;
        let names = names.into_iter().map(String::from_utf8);
        let found = (search.kind, names.filter_map(Result::ok).collect());
        if next == END {
            self.current += 1;
        }
        self.cursor = next;
        Ok(Some(found))
    }

    /// The start of the next page; `None` at the end.
    fn position(&self) -> Option<String> {
        let Search { server, kind, .. } = self.searches.get(self.current)?;
        Some(format!("{server}/{kind}:{}", self.cursor))
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

/// The search with which a page begins, and its cursor; `None` for a position of another list. If the server is gone, the
/// next one follows.
fn begin<'a>(position: &'a str, searches: &[Search]) -> Option<(usize, &'a str)> {
    let (server, rest) = position.rsplit_once('/')?;
    let (kind, cursor) = rest.split_once(':')?;
    let is_number = !cursor.is_empty() && cursor.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || searches.iter().all(|search| search.kind != kind) {
        return None;
    }
    let mut same = searches.iter();
    let same = same.position(|search| search.server == server && search.kind == kind);
    let next = || searches.partition_point(|search| *search.server < *server);
    Some(same.map_or_else(|| (next(), END), |same| (same, cursor)))
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
