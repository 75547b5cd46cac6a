//! `lockctl ls`: which locks are held, and which records are kept.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use tower_distributed_lock::store::{ListQuery, LockEntry, Page, RecordEntry};
use tower_distributed_lock::{LockError, LockKey};

use crate::cli::ListArgs;
use crate::connection::Connection;
use crate::exit::Failure;
use crate::glob;
use crate::messages::warn;
use crate::show::{at_least, client};
use crate::text::{left, plain, table};

/// How many keys one request to the store lists.
const PAGE: usize = 500;

pub(crate) async fn ls(args: &ListArgs, connection: &Connection) -> Result<u8, Failure> {
    let admin = connection.admin().await?;
    match args.records {
        false => {
            let pages = async |query| admin.locks(&query).await;
            let locks = all(args, pages, |entry: &LockEntry| &entry.key).await?;
            print_entries(args, "locks", locks, LOCKS, lock)
        }
        true => {
            let pages = async |query| admin.records(&query).await;
            let records = all(args, pages, |entry: &RecordEntry| &entry.key).await?;
            print_entries(args, "records", records, RECORDS, record)
        }
    }
}

/// The entries that match, in the order of the names.
struct Found<T> {
    entries: Vec<T>,
    /// There may be more than `--limit` allows.
    truncated: bool,
    /// What could not be listed, and why.
    left_out: Vec<String>,
}

async fn all<T>(
    args: &ListArgs,
    page: impl AsyncFn(ListQuery) -> Result<Page<T>, LockError>,
    key: impl Fn(&T) -> &LockKey,
) -> Result<Found<T>, Failure> {
    // A key may be on several pages.
    let (mut found, mut left_out) = (BTreeMap::new(), Vec::new());
    let mut query = ListQuery::new()
        .prefix(glob::prefix(&args.pattern))
        .limit(PAGE);
    loop {
        let page = page(query.clone()).await?;
        left_out.extend(page.left_out);
        for entry in page.entries {
            if glob::matches(&args.pattern, key(&entry).name()) {
                found.insert(key(&entry).clone(), entry);
            }
        }
        let more = found.len() > args.limit;
        match page.next {
            Some(next) if !more => query = query.after(next),
            _ => {
                return Ok(Found {
                    entries: found.into_values().take(args.limit).collect(),
                    truncated: more,
                    left_out,
                });
            }
        }
    }
}

fn print_entries<T: Serialize>(
    args: &ListArgs,
    name: &'static str,
    found: Found<T>,
    head: &[&str],
    row: fn(&T) -> Vec<String>,
) -> Result<u8, Failure> {
    let Found {
        entries,
        truncated,
        left_out,
    } = found;
    let found = json!({ name: entries, "truncated": truncated, "left_out": left_out });
    let text = || table(head, entries.iter().map(row));
    args.output.print(&found, text)?;
    if args.output.json {
        return Ok(0);
    }
    for what in left_out {
        warn(format!("not listed: {}", plain(&what)));
    }
    if truncated {
        warn("there are more: narrow --match, or raise --limit");
    }
    Ok(0)
}

const LOCKS: &[&str] = &["KEY", "MODE", "HOLDER", "CLIENT", "LEASE LEFT", "WAITING"];

/// The row of a lock, which shows the first holder only.
fn lock(entry: &LockEntry) -> Vec<String> {
    let found = &entry.inspection;
    let key = plain(entry.key.name());
    let Some(first) = found.holders.first() else {
        return vec![key];
    };
    let others = match found.holders.len() {
        1 => String::new(),
        count => format!(" and {}{} more", at_least(found), count - 1),
    };
    vec![
        key,
        first.mode.as_str().to_owned(),
        plain(&first.id) + &others,
        client(first),
        left(first.remaining),
        found.waiters.len().to_string(),
    ]
}

const RECORDS: &[&str] = &["KEY", "BYTES", "KEPT FOR"];

fn record(entry: &RecordEntry) -> Vec<String> {
    vec![
        plain(entry.key.name()),
        entry.size.to_string(),
        left(entry.remaining),
    ]
}
