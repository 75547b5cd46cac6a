//! The waiting callers. It checks that none waits for a free lock, and that none is overtaken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::Attempt;

use super::book::Book;
use super::checked_stores::CheckedStores;
use super::line::{CALLER, Line};
use super::log::Log;

/// The waiting callers and their keys.
pub(super) struct Waits {
    log: Arc<Log>,
    began: Instant,
    /// The longest time that a free lock may remain untaken while a caller waits; `None` where faults allow
    /// any time.
    bound: Option<Duration>,
    /// `None` where the store may lose waiters.
    line: Option<Line>,
    waiting: Mutex<Vec<(LockKey, Instant, u64)>>,
}

impl Waits {
    pub(super) fn new(log: Arc<Log>, bound: Option<Duration>, line: Option<Line>) -> Self {
        Self {
            log,
            began: Instant::now(),
            bound,
            line,
            waiting: Mutex::default(),
        }
    }

    /// Begins a request that waits for `key`, if there is one, until the value is dropped.
    pub(super) fn wait(&self, key: Option<&LockKey>) -> Waiting<'_> {
        let since = Instant::now();
        let number = self.log.tick();
        let mut waiting = self.waiting.lock().unwrap();
        waiting.extend(key.map(|key| (key.clone(), since, number)));
        Waiting {
            waits: self,
            caller: CALLER.get(),
            since,
            number,
        }
    }

    /// Records the grant of a new hold.
    pub(super) fn granted(&self, book: &mut Book, attempt: &Attempt) {
        let hold = &attempt.hold;
        let longest = {
            let waiting = self.waiting.lock().unwrap();
            let here = waiting.iter().filter(|(waited, ..)| *waited == hold.key);
            here.map(|(_, since, _)| *since).min()
        };
        if let Some(since) = longest {
            self.judge(book, &hold.key, since);
        }
        if let Some(line) = &self.line {
            line.granted(attempt);
        }
    }

    /// Records a refusal.
    pub(super) fn refused(&self, book: &mut Book, attempt: &Attempt, rest: Duration) {
        if let Some(line) = &self.line {
            let free = book.free_since(&attempt.hold.key, self.began).is_some();
            line.refused(attempt, free, rest);
        }
    }

    /// Records a withdrawal.
    pub(super) fn withdrawn(&self, hold: &Hold) {
        if let Some(line) = &self.line {
            line.withdrawn(hold);
        }
    }

    /// Records that an attempt got no answer.
    pub(super) fn failed(&self, attempt: &Attempt) {
        if let Some(line) = &self.line {
            line.failed(&attempt.hold);
        }
    }

    fn judge(&self, book: &mut Book, key: &LockKey, since: Instant) {
        let (Some(bound), Some(free)) = (self.bound, book.free_since(key, self.began)) else {
            return;
        };
        let idle = since.max(free).elapsed();
        if idle > bound {
            let text = format!("{key} was free for {idle:?} while a request waited");
            self.log.violated("L2", text);
        }
    }
}

/// A request under way.
pub(super) struct Waiting<'a> {
    waits: &'a Waits,
    caller: usize,
    since: Instant,
    number: u64,
}

impl Waiting<'_> {
    /// Checks a request whose wait has ended without a grant.
    pub(super) fn in_vain(&self, checked_stores: &CheckedStores, key: &LockKey) {
        if self.waits.bound.is_some() {
            let mut book = checked_stores.only().book();
            self.waits.judge(&mut book, key, self.since);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waits.waiting.lock().unwrap();
        waiting.retain(|(_, _, number)| *number != self.number);
        drop(waiting);
        if let Some(line) = &self.waits.line {
            line.left(self.caller);
        }
    }
}
