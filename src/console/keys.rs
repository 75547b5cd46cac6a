//! A page of the keys in use.

use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::holders::{HolderCache, Who};
use super::millis;
use super::problem::Problem;
use super::row::Row;
use crate::lock::{Lease, LockKey};

/// The default and the largest size of a page.
const SIZE: (usize, usize) = (50, 200);

/// `api/keys?…`, before it is parsed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeysText {
    sort: String,
    order: String,
    #[serde(rename = "match")]
    text: String,
    which: String,
    page: Option<usize>,
    size: Option<usize>,
    /// The key that `api/live` shows in full.
    pub(super) key: Option<String>,
}

/// The filter and the order of the keys.
#[derive(Debug, Clone)]
pub(super) struct KeysQuery {
    pub(super) sort: Sort,
    pub(super) order: Order,
    /// The text that the names contain.
    pub(super) text: String,
    pub(super) which: Which,
    /// From 1.
    pub(super) page: usize,
    pub(super) size: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sort {
    Key,
    Mode,
    Route,
    #[serde(alias = "")]
    Age,
    Lease,
    Renewals,
    Waiters,
    Token,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) enum Order {
    #[serde(rename = "asc")]
    Ascending,
    #[serde(rename = "desc", alias = "")]
    Descending,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Which {
    #[serde(alias = "")]
    All,
    /// Held by this process.
    Held,
    /// Waited for, and not held by this process.
    Elsewhere,
    /// With requests that wait.
    Contended,
}

impl KeysQuery {
    pub(super) fn parse(text: KeysText) -> Result<Self, Problem> {
        Ok(Self {
            sort: one_of(
                &text.sort,
                "sort: key, mode, route, age, lease, renewals, waiters or token",
            )?,
            order: one_of(&text.order, "order: asc or desc")?,
            which: one_of(&text.which, "which: all, held, elsewhere or contended")?,
            text: text.text,
            page: text.page.unwrap_or(1).max(1),
            size: text.size.unwrap_or(SIZE.0).clamp(1, SIZE.1),
        })
    }
}

/// The value that `text` names. The problem names the `values` that there are.
fn one_of<'a, T: Deserialize<'a>>(text: &'a str, values: &str) -> Result<T, Problem> {
    let value = T::deserialize(text.into_deserializer());
    value.map_err(|_: Error| Problem::bad_request(values))
}

/// `api/keys`.
#[derive(Debug, Serialize)]
pub(super) struct KeysPage {
    /// The number of keys that requests of this process hold or wait for.
    pub(super) keys_in_use: usize,
    /// The number of these keys that this process holds.
    pub(super) held: usize,
    /// The number of waiting requests of this process.
    pub(super) waiters: usize,
    /// The number of keys that match the query.
    pub(super) matching: usize,
    pub(super) page: usize,
    pub(super) pages: usize,
    pub(super) size: usize,
    pub(super) keys: Vec<KeyRow>,
}

/// One key of a page.
#[derive(Debug, Serialize)]
pub(super) struct KeyRow {
    key: LockKey,
    /// `held`, `releasing`, `lost`, or `waiting` where this process does not hold it.
    state: &'static str,
    mode: &'static str,
    holder: Who,
    route: String,
    /// The time since the present holder got the lock, or since the first request began to wait.
    age_ms: Option<u64>,
    lease_ms: Option<u64>,
    lease_left_ms: Option<u64>,
    /// Whether the lease is renewed.
    renewed: Option<bool>,
    renewals: Option<u32>,
    handovers: Option<u32>,
    /// The number of guards that share the hold.
    shares: Option<usize>,
    /// The number of holds of this process on the key.
    holds: usize,
    waiters: usize,
    longest_wait_ms: Option<u64>,
    /// A string: JavaScript has no numbers of 64 bits.
    token: Option<String>,
}

impl KeysPage {
    /// Adds the holders of keys that this process waits for, from the store.
    pub(super) async fn complete(mut self, holders: &HolderCache) -> Self {
        let unknown = self.keys.iter_mut().filter(|row| row.state == "waiting");
        holders
            .find(unknown.map(|row| (&row.key, &mut row.holder, &mut row.lease_left_ms)))
            .await;
        self
    }
}

impl KeyRow {
    pub(super) fn new(row: &Row, now: Instant) -> Self {
        let hold = row.view.hold.as_ref();
        Self {
            key: row.view.key.clone(),
            state: hold.map_or("waiting", |hold| hold.state),
            mode: row.mode(),
            holder: hold.map_or_else(Who::unknown, |hold| Who::here(hold.id)),
            route: row.route.as_str().to_owned(),
            age_ms: row.began().map(|began| millis::since(began, now)),
            lease_ms: hold.map(|hold| millis::of(hold.lease.duration())),
            lease_left_ms: hold.map(|hold| millis::since(now, hold.deadline)),
            renewed: hold.map(|hold| matches!(hold.lease, Lease::Renewed(_))),
            renewals: hold.map(|hold| hold.renewals),
            handovers: hold.map(|hold| hold.handovers),
            shares: hold.map(|hold| hold.shares),
            holds: row.view.holds,
            waiters: row.waiters,
            longest_wait_ms: row.first_waiter.map(|first| millis::since(first, now)),
            token: hold
                .and_then(|hold| hold.token)
                .map(|token| token.to_string()),
        }
    }
}
