//! Every key in use, at one moment.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::keys::{KeysPage, KeysQuery, Order, Sort, Which};
use super::row::Row;
use crate::client::LockClient;
use crate::lock::{FencingToken, KeyMap};
use crate::table::HoldView;
use crate::telemetry::journal::StoreWaiter;

/// The state of a client at one moment.
pub(super) struct Survey {
    at: Instant,
    rows: Vec<Arc<Row>>,
}

impl Survey {
    pub(super) fn take(locks: &LockClient) -> Self {
        let mut refused: KeyMap<Vec<StoreWaiter>> = KeyMap::default();
        for waiter in locks.journal().store_waiters() {
            refused.entry(waiter.key.clone()).or_default().push(waiter);
        }
        let rows = locks.table().view().into_iter().map(|view| {
            let refused = refused.remove(&view.key).unwrap_or_default();
            Arc::new(Row::new(view, &refused))
        });
        Self {
            rows: rows.collect(),
            at: Instant::now(),
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// The page for `query`.
    pub(super) fn page(&self, query: &KeysQuery) -> KeysPage {
        let rows = self.rows.iter().filter(|row| query.takes(row));
        let mut matching: Vec<_> = rows.cloned().collect();
        matching.sort_unstable_by(|a, b| query.compare(a, b));
        let size = query.size();
        let pages = matching.len().div_ceil(size).max(1);
        let page = query.page().min(pages);
        let first = (page - 1) * size;
        let held = self.rows.iter().filter(|row| row.is_held());
        let waiters = self.rows.iter().map(|row| row.waiters);
        KeysPage {
            at: self.at,
            counts: json!({
                "keys_in_use": self.rows.len(),
                "held": held.count(),
                "waiters": waiters.sum::<usize>(),
                "matching": matching.len(),
                "page": page,
                "pages": pages,
                "size": size,
            }),
            rows: matching.into_iter().skip(first).take(size).collect(),
        }
    }
}

impl KeysQuery {
    fn takes(&self, row: &Row) -> bool {
        let is_asked_for = match self.which {
            Which::All => true,
            Which::Held => row.is_held(),
            Which::Elsewhere => !row.is_held(),
            Which::Contended => row.waiters > 0,
        };
        is_asked_for && row.view.key.name().contains(&self.text)
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let order = match self.sort {
            Sort::Key => Ordering::Equal,
            Sort::Mode => a.mode().cmp(b.mode()),
            Sort::Route => a.route.as_str().cmp(b.route.as_str()),
            // The older it is, the earlier it began.
            Sort::Age => b.began().cmp(&a.began()),
            Sort::Lease => by(a, b, |hold| hold.deadline),
            Sort::Renewals => by(a, b, |hold| hold.renewals),
            Sort::Waiters => {
                (a.waiters, Reverse(a.first_waiter)).cmp(&(b.waiters, Reverse(b.first_waiter)))
            }
            Sort::Token => by(a, b, |hold| hold.token.map(FencingToken::value)),
        };
        let order = match self.order {
            Order::Ascending => order,
            Order::Descending => order.reverse(),
        };
        let by_name = || match (self.sort, self.order) {
            (Sort::Key, Order::Descending) => b.view.key.cmp(&a.view.key),
            _ => a.view.key.cmp(&b.view.key),
        };
        order.then_with(by_name)
    }
}

/// Compares the holds of two rows by a value. A row without a hold is the smallest.
fn by<T: Ord>(a: &Row, b: &Row, value: fn(&HoldView) -> T) -> Ordering {
    let [a, b] = [a, b].map(|row| row.view.hold.as_ref().map(value));
    a.cmp(&b)
}
