//! A page of the keys in use.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::holders::Holders;
use crate::row::Row;

/// The default and the largest size of a page.
const SIZE: (usize, usize) = (50, 200);

/// `api/keys?…`: the filter and the order of the keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeysQuery {
    pub(crate) sort: Sort,
    pub(crate) order: Order,
    /// The text that the names contain.
    #[serde(rename = "match")]
    pub(crate) text: String,
    pub(crate) which: Which,
    page: Option<usize>,
    size: Option<usize>,
    /// The key that `api/live` shows in full.
    pub(crate) key: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sort {
    Key,
    Mode,
    Route,
    #[default]
    Age,
    Lease,
    Waiters,
    Token,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) enum Order {
    #[serde(rename = "asc")]
    Ascending,
    #[default]
    #[serde(rename = "desc")]
    Descending,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Which {
    #[default]
    All,
    /// Held by this process.
    Held,
    /// This process waits for the key and does not hold it.
    Elsewhere,
    /// With requests that wait.
    Contended,
}

impl KeysQuery {
    /// From 1.
    pub(crate) fn page(&self) -> usize {
        self.page.unwrap_or(1).max(1)
    }

    pub(crate) fn size(&self) -> usize {
        self.size.unwrap_or(SIZE.0).clamp(1, SIZE.1)
    }
}

/// The rows of one page, and the counts beside them.
pub(crate) struct KeysPage {
    pub(crate) counts: Value,
    pub(crate) rows: Vec<Arc<Row>>,
}

impl KeysPage {
    /// `api/keys`. Asks the store for the holders of the keys that this process does not hold.
    pub(crate) async fn json(mut self, holders: &Holders) -> Value {
        let elsewhere = self.rows.iter().filter(|row| !row.is_held());
        let found = holders.find(elsewhere.map(|row| &row.key.key)).await;
        let rows = self.rows.iter().map(|row| {
            let holder = found.get(&row.key.key).and_then(|answer| answer.get());
            row.json(holder.and_then(Option::as_ref))
        });
        self.counts["keys"] = rows.collect();
        self.counts
    }
}
