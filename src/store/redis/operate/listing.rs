//! Lists the keys of all servers, page by page.

use std::error::Error;
use std::sync::Arc;

use futures_util::future::join_all;

use super::admin::lifetime;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::listing::foreign_cursor;
use crate::store::redis::RedisStore;
use crate::store::redis::link::{Link, Purpose};
use crate::store::redis::protocol::failure;
use crate::store::redis::protocol::names::{self, Name, RECORD};
use crate::store::redis::protocol::reply::read;
use crate::store::redis::protocol::script::Call;
use crate::store::redis::servers::node::Node;
use crate::store::{BATCH, Inspect, ListQuery, LockEntry, LockStore, Page, RecordEntry};

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

impl RedisStore {
    pub(super) async fn walk_locks(
        &self,
        query: &ListQuery,
    ) -> Result<Page<LockEntry>, StoreError> {
        let prefix = names::literally(&query.prefix);
        let searches = [
            (LOCKS, format!("{prefix}*")),
            (PERMITS, format!("*{prefix}*{}", names::PERMITS)),
        ];
        let keys = |kind: &str, name: String| match kind {
            PERMITS => names::permitted(&name).collect(),
            _ => vec![LockKey::from(name)],
        };
        let look = |kind: &str, key| self.held(key, kind == PERMITS);
        self.walk(query, &searches, keys, look).await
    }

    pub(super) async fn walk_records(
        &self,
        query: &ListQuery,
    ) -> Result<Page<RecordEntry>, StoreError> {
        // A name with a hash tag of its own has no further braces in the key.
        let pattern = format!("{RECORD}*{}*", names::literally(&query.prefix));
        let keys = |_: &str, name: String| names::recorded(&name).into_iter().collect();
        let look = |_: &str, key| self.remembered(key);
        self.walk(query, &[(RECORDS, pattern)], keys, look).await
    }

    /// Begins where the query's page begins. Each server is searched for all of `searches`, one after the other. `keys`: the keys that
    /// a name of this type tells of; `look`: the entry of a key.
    ///
    /// A server of several that fails is left out, unless none answers: operators look at locks during an outage.
    async fn walk<T, F: Future<Output = Result<Option<T>, StoreError>>>(
        &self,
        query: &ListQuery,
        searches: &[(&'static str, String)],
        keys: impl Fn(&str, String) -> Vec<LockKey>,
        look: impl Fn(&str, LockKey) -> F,
    ) -> Result<Page<T>, StoreError> {
        let servers = self.inner.router.servers().await?;
        let all = Search::all(&servers, searches);
        let (mut current, cursor) = match query.after.as_deref() {
            Some(text) => begin(text, &all).ok_or_else(foreign_cursor)?,
            None => (0, END),
        };
        let (mut cursor, mut steps, mut page) = (cursor.to_owned(), 0, Page::new(Vec::new(), None));
        let (mut has_answered, mut failure) = (query.after.is_some(), None);
        while page.entries.len() < query.limit
            && steps < STEPS
            && let Some(search) = all.get(current)
        {
            steps += 1;
            let found = async {
                let (next, names) = search.step(&cursor).await?;
                let found = names.into_iter().flat_map(|name| keys(search.kind, name));
                let found = found.filter(|key| self.is_listed(query, key)).collect();
                add(&mut page, found, |key| look(search.kind, key)).await?;
                Ok(next)
            };
            match found.await {
                Ok(next) => {
                    has_answered = true;
                    current += usize::from(next == END);
                    cursor = next;
                }
                Err(error) if servers.len() == 1 => return Err(error),
                Err(error) => {
                    page.left_out.push(left_out(&search.server, &error));
                    current = all.partition_point(|other| other.server <= search.server);
                    END.clone_into(&mut cursor);
                    failure = Some(error);
                }
            }
        }
        page.next = all.get(current).map(|search| search.position(&cursor));
        match failure {
            Some(error) if !has_answered => Err(error),
            _ => Ok(page),
        }
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
        let ask = |command| Call::about(command, Name::at(&key, RECORD));
        let size: u64 = read(self.call(&key, |_| ask("STRLEN")).await?)?;
        let left: i64 = read(self.call(&key, |_| ask("PTTL")).await?)?;
        // It has expired since.
        let is_gone = left == -2;
        Ok((!is_gone).then(|| RecordEntry::new(key, size, lifetime(left))))
    }
}

impl Search {
    /// Those of a list, in their order.
    fn all(servers: &[(String, Arc<Node>)], searches: &[(&'static str, String)]) -> Vec<Self> {
        let of_one = |(server, node): &(String, Arc<Node>)| {
            let connection = node.first(Purpose::Commands);
            let these = searches.iter().map(|(kind, pattern)| Self {
                server: server.clone(),
                connection: connection.clone(),
                kind,
                pattern: pattern.clone(),
            });
            these.collect::<Vec<_>>()
        };
        servers.iter().flat_map(of_one).collect()
    }

    /// The start of a page, for [`begin`].
    fn position(&self, cursor: &str) -> String {
        let Self { server, kind, .. } = self;
        format!("{server}/{kind}:{cursor}")
    }

    /// The next cursor, and the names of the next keys. Those that are not UTF-8 are not keys of this crate and are skipped.
    async fn step(&self, cursor: &str) -> Result<(String, Vec<String>), StoreError> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(STEP).arg("TYPE").arg(self.kind);
        let answer = failure::accepted(self.connection.query(&scan).await?)?;
        let (next, names): (String, Vec<Vec<u8>>) = read(answer)?;
        let names = names.into_iter().map(String::from_utf8);
        Ok((next, names.filter_map(Result::ok).collect()))
    }
}

/// Adds the entries of these keys to a page.
async fn add<T, F: Future<Output = Result<Option<T>, StoreError>>>(
    page: &mut Page<T>,
    keys: Vec<LockKey>,
    look: impl Fn(LockKey) -> F,
) -> Result<(), StoreError> {
    for some in keys.chunks(BATCH) {
        let entries = join_all(some.iter().cloned().map(&look)).await;
        for (key, entry) in some.iter().zip(entries) {
            match entry {
                // Its slot is being moved: no server has all that belongs to it.
                Err(error) if failure::is_split(&error) => {
                    page.left_out.push(left_out(key.name(), &error));
                }
                entry => page.entries.extend(entry?),
            }
        }
    }
    Ok(())
}

fn left_out(what: &str, why: &StoreError) -> String {
    let source = why.source().map(ToString::to_string);
    format!("{what}: {why}: {}", source.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_literally() {
        assert_eq!(names::literally("lock:a*[b]?\\"), "lock:a\\*\\[b\\]\\?\\\\");
    }

    #[test]
    fn a_key_is_read_from_the_name_of_its_record() {
        for name in ["n", "a{n}b", "order:42"] {
            let key = LockKey::new(name);
            let record = Name::at(&key, RECORD).to_string();
            assert_eq!(names::recorded(&record), Some(key));
        }
        assert_eq!(names::recorded("tower_lock_recorder"), None);
    }

    #[test]
    fn a_key_is_read_from_the_name_of_its_permits() {
        for name in ["n", "{n}", "a{n}b", "order:42", "{a}{b}"] {
            let key = LockKey::new(name);
            let permits = Name::permits(&key).to_string();
            assert!(
                names::permitted(&permits).any(|other| other == key),
                "{name}"
            );
        }
        // Two keys have this name: Redisson's.
        assert_eq!(names::permitted("{n}:timeout").count(), 2);
        for name in ["n:timeout", "{n}:timeouts", "{n}"] {
            assert_eq!(names::permitted(name).count(), 0, "{name}");
        }
    }
}
