//! Who waits, and whether anybody waits for nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::LockKey;

use super::book::Book;
use super::log::Log;

/// Everybody who waits for one key.
pub(super) struct Waits {
    log: Arc<Log>,
    began: Instant,
    /// The longest that a free lock may stay untaken while somebody waits; `None` where faults allow anything.
    bound: Option<Duration>,
    waiting: Mutex<Vec<(LockKey, Instant, u64)>>,
}

impl Waits {
    pub(super) fn new(log: Arc<Log>, bound: Option<Duration>) -> Self {
        Self {
            log,
            began: Instant::now(),
            bound,
            waiting: Mutex::default(),
        }
    }

    /// Somebody waits for `key` from now on, until the value is dropped.
    pub(super) fn wait(&self, key: &LockKey) -> Waiting<'_> {
        let since = Instant::now();
        let number = self.log.tick();
        let mut waiting = self.waiting.lock().unwrap();
        waiting.push((key.clone(), since, number));
        Waiting {
            waits: self,
            since,
            number,
        }
    }

    /// Somebody is granted `key` just now.
    pub(super) fn granted(&self, book: &mut Book, key: &LockKey) {
        let longest = {
            let waiting = self.waiting.lock().unwrap();
            let here = waiting.iter().filter(|(waited, ..)| waited == key);
            here.map(|(_, since, _)| *since).min()
        };
        if let Some(since) = longest {
            self.judge(book, key, since);
        }
    }

    fn judge(&self, book: &mut Book, key: &LockKey, since: Instant) {
        let (Some(bound), Some(free)) = (self.bound, book.free_since(key, self.began)) else {
            return;
        };
        let idle = since.max(free).elapsed();
        if idle > bound {
            let text = format!("{key} was free for {idle:?} while somebody waited");
            self.log.violated("L2", text);
        }
    }
}

/// One who waits.
pub(super) struct Waiting<'a> {
    waits: &'a Waits,
    since: Instant,
    number: u64,
}

impl Waiting<'_> {
    /// It has waited in vain.
    pub(super) fn refused(&self, book: &mut Book, key: &LockKey) {
        self.waits.judge(book, key, self.since);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waits.waiting.lock().unwrap();
        waiting.retain(|(_, _, number)| *number != self.number);
    }
}
