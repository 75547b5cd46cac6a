//! Who holds and who waits in this process, for a dashboard.

use std::vec;

use tokio::time::Instant;

use super::LockClient;
use crate::lock::LockKey;
use crate::table::KeySnapshot;

/// The keys in use, read while it is iterated. See [`LockClient::snapshot`].
#[derive(Debug)]
#[must_use = "a snapshot reads nothing until it is iterated"]
pub struct Snapshot {
    locks: LockClient,
    next_page: usize,
    /// When it was made.
    at: Instant,
    page: vec::IntoIter<KeySnapshot>,
}

impl LockClient {
    /// Who holds and who waits in this process: every key in use, in no particular order. For dashboards and for the log of a
    /// program that hangs. [`LockAdmin`](crate::LockAdmin) sees the holders of all processes.
    ///
    /// The keys are read in pages while the snapshot is iterated, so that the client's requests wait for one page at most. So each
    /// page is of a slightly later instant, and a key may come or go meanwhile. Times count up to the call. With very many keys, iterate where
    /// some milliseconds of work delay no request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let guard = locks.lock("invoice:7").label("/invoices/{id}").await?;
    /// for key in locks.snapshot() {
    ///     for hold in key.holds {
    ///         println!("{}: held for {:?} by {:?}", key.key, hold.held, hold.route);
    ///     }
    /// }
    /// # assert_eq!(locks.snapshot().count(), 1);
    /// # guard.release().await
    /// # }
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            locks: self.clone(),
            next_page: 0,
            at: Instant::now(),
            page: Vec::new().into_iter(),
        }
    }

    /// The same of one key; `None` if no request of this process uses it.
    pub fn snapshot_of(&self, key: impl Into<LockKey>) -> Option<KeySnapshot> {
        let (key, now) = (self.named(key.into()), Instant::now());
        self.inner.core.table.snapshot_of(&key, now)
    }
}

impl Iterator for Snapshot {
    type Item = KeySnapshot;

    fn next(&mut self) -> Option<KeySnapshot> {
        loop {
            if let Some(key) = self.page.next() {
                return Some(key);
            }
            let table = &self.locks.inner.core.table;
            let page = table.snapshot(self.next_page, self.at)?;
            self.next_page += 1;
            self.page = page.into_iter();
        }
    }
}
