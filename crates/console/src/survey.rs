//! Every key in use, at one moment.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tower_distributed_lock::client::HoldSnapshot;
use tower_distributed_lock::{FencingToken, LockClient};

use crate::keys::{KeysPage, KeysQuery, Order, Sort, Which};
use crate::row::Row;

/// The state of a client at one moment.
pub(crate) struct Survey {
    at: Instant,
    rows: Vec<Arc<Row>>,
}

impl Survey {
    pub(crate) fn take(locks: &LockClient) -> Self {
        let rows = locks.snapshot().map(|key| Arc::new(Row::new(key)));
        Self {
            rows: rows.collect(),
            at: Instant::now(),
        }
    }

    pub(crate) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// The page for `query`.
    pub(crate) fn page(&self, query: &KeysQuery) -> KeysPage {
        let mut matching: Vec<_> = self.rows.iter().filter(|row| query.takes(row)).collect();
        let (count, size) = (matching.len(), query.size());
        let pages = count.div_ceil(size).max(1);
        let page = query.page().min(pages);
        let first = (page - 1) * size;
        let end = count.min(first + size);
        // Only what is shown is sorted: there may be many keys, and many viewers.
        if end < count {
            matching.select_nth_unstable_by(end, |a, b| query.compare(a, b));
            matching.truncate(end);
        }
        if first > 0 && first < end {
            matching.select_nth_unstable_by(first, |a, b| query.compare(a, b));
        }
        let shown = &mut matching[first..];
        shown.sort_unstable_by(|a, b| query.compare(a, b));
        let rows = shown.iter().map(|row| Arc::clone(row)).collect();
        let held = self.rows.iter().filter(|row| row.is_held());
        let waiters = self.rows.iter().map(|row| row.waiters());
        KeysPage {
            counts: json!({
                "keys_in_use": self.rows.len(),
                "held": held.count(),
                "waiters": waiters.sum::<usize>(),
                "matching": count,
                "page": page,
                "pages": pages,
                "size": size,
            }),
            rows,
        }
    }
}

impl KeysQuery {
    fn takes(&self, row: &Row) -> bool {
        let is_asked_for = match self.which {
            Which::All => true,
            Which::Held => row.is_held(),
            Which::Elsewhere => !row.is_held(),
            Which::Contended => row.waiters() > 0,
        };
        is_asked_for && row.key.key.name().contains(&self.text)
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let order = match self.sort {
            Sort::Key => Ordering::Equal,
            Sort::Mode => a.mode().cmp(b.mode()),
            Sort::Route => a.route().cmp(b.route()),
            Sort::Age => a.age().cmp(&b.age()),
            Sort::Lease => by(a, b, |hold| hold.remaining),
            Sort::Waiters => (a.waiters(), a.longest_wait()).cmp(&(b.waiters(), b.longest_wait())),
            Sort::Token => by(a, b, |hold| hold.token.map(FencingToken::value)),
        };
        let order = match self.order {
            Order::Ascending => order,
            Order::Descending => order.reverse(),
        };
        let by_name = || match (self.sort, self.order) {
            (Sort::Key, Order::Descending) => b.key.key.cmp(&a.key.key),
            _ => a.key.key.cmp(&b.key.key),
        };
        order.then_with(by_name)
    }
}

/// Compares the holds of two rows by a value. A row without a hold is the smallest.
fn by<T: Ord>(a: &Row, b: &Row, value: fn(&HoldSnapshot) -> T) -> Ordering {
    let [a, b] = [a, b].map(|row| row.hold().map(value));
    a.cmp(&b)
}
