//! How much memory request bodies may occupy before their handlers get them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::LockKey;
use crate::sync::Mutex;

/// How much of each body needs no room in the budget: a small body is read whatever other clients do.
pub(super) const FREE: usize = 64 * 1024;

/// What all bodies of a layer may occupy together, beyond the free part of each. A longer body is never read.
pub(super) const TOTAL: usize = 64 * 1024 * 1024;

/// What the bodies of the requests that wait for one key may occupy together, so that one busy key takes no room from others.
const PER_KEY: usize = TOTAL / 4;

/// A body that arrives more slowly (bytes a second) gives way when another one needs its room.
const FAST: f64 = 1024.0 * 1024.0;

/// How long a sender may fall behind [`FAST`], or run ahead of it, before that counts.
const LEEWAY: Duration = Duration::from_secs(1);

/// The budget of a layer. Clones share it.
#[derive(Clone, Default)]
pub(super) struct BodyBudget(Arc<Mutex<Budget>>);

/// Between calls, `taken` is the sum of all shares that exist, of bodies that are being read and of those that wait for their lock.
/// A body in `unfinished` is being read. No other mutex is taken under this one.
#[derive(Default)]
struct Budget {
    taken: usize,
    /// By the numbers of their shares.
    unfinished: HashMap<u64, Unfinished>,
    next: u64,
    /// How much the requests that wait for a key occupy.
    waiting: HashMap<LockKey, usize>,
}

/// A body that is being read.
struct Unfinished {
    bytes: usize,
    /// Until when a sender of [`FAST`] bytes a second would have sent what has arrived.
    due: Instant,
    /// Tells its reader to give up.
    gives_way: Arc<Notify>,
}

impl BodyBudget {
    /// Begins to read a body. The notification tells the reader to give up.
    pub(super) fn begin(&self) -> (Share, Arc<Notify>) {
        let mut budget = self.0.lock();
        let number = budget.next;
        budget.next += 1;
        let gives_way = Arc::new(Notify::new());
        let unfinished = Unfinished {
            bytes: 0,
            due: Instant::now() + LEEWAY,
            gives_way: gives_way.clone(),
        };
        budget.unfinished.insert(number, unfinished);
        let share = Share {
            budget: Some(self.clone()),
            number,
            bytes: 0,
            is_whole: false,
            key: None,
        };
        (share, gives_way)
    }
}

impl Budget {
    /// Makes room for `more` bytes of the body `number`. Bodies that arrive slowly give way, the slowest one first.
    fn make_room(&mut self, number: u64, more: usize, now: Instant) -> bool {
        while self.taken + more > TOTAL {
            let others = self.unfinished.iter();
            let slow = others
                .filter(|(other, body)| **other != number && body.bytes > 0 && body.due < now);
            let Some((&slowest, _)) = slow.min_by_key(|(_, body)| body.due) else {
                return false;
            };
            if let Some(body) = self.unfinished.remove(&slowest) {
                self.taken -= body.bytes;
                body.gives_way.notify_one();
            }
        }
        self.taken += more;
        true
    }
}

/// The room of one body in the budget, which is given back when it is dropped. The default one has none.
#[derive(Debug, Default)]
pub struct Share {
    budget: Option<BodyBudget>,
    number: u64,
    bytes: usize,
    /// The body has arrived, so that it gives way to none.
    is_whole: bool,
    /// The key for which its request waits.
    key: Option<LockKey>,
}

impl Share {
    /// Takes room for a body of `length` bytes, of which `arrived` have just arrived. `false`: there is none.
    pub(super) fn grow(&mut self, length: usize, arrived: usize) -> bool {
        let Some(BodyBudget(budget)) = &self.budget else {
            return true;
        };
        let now = Instant::now();
        let mut budget = budget.lock();
        let more = length.saturating_sub(FREE).saturating_sub(self.bytes);
        if more > 0 && !budget.make_room(self.number, more, now) {
            return false;
        }
        // A body that gave way has given its room back.
        let Some(body) = budget.unfinished.get_mut(&self.number) else {
            budget.taken -= more;
            return false;
        };
        self.bytes += more;
        body.bytes = self.bytes;
        let ahead = body.due + Duration::from_secs_f64(arrived as f64 / FAST);
        body.due = ahead.min(now + LEEWAY);
        true
    }

    /// The body has arrived. `false`: it gave way before.
    pub(super) fn finish(&mut self) -> bool {
        let Some(BodyBudget(budget)) = &self.budget else {
            return true;
        };
        self.is_whole = budget.lock().unfinished.remove(&self.number).is_some();
        self.is_whole
    }

    /// The request of the body waits for `key`. `false`: the bodies of those that wait for it occupy too much.
    pub(super) fn wait_for(&mut self, key: &LockKey) -> bool {
        let Some(BodyBudget(budget)) = &self.budget else {
            return true;
        };
        let mut budget = budget.lock();
        let waiting = budget.waiting.entry(key.clone()).or_default();
        if *waiting > 0 && *waiting + self.bytes > PER_KEY {
            return false;
        }
        *waiting += self.bytes;
        self.key = Some(key.clone());
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(BodyBudget(budget)) = &self.budget else {
            return;
        };
        let mut budget = budget.lock();
        // A body that gave way has given its room back.
        if self.is_whole || budget.unfinished.remove(&self.number).is_some() {
            budget.taken -= self.bytes;
        }
        if let Some(key) = &self.key
            && let Some(waiting) = budget.waiting.get_mut(key)
        {
            *waiting -= self.bytes;
            if *waiting == 0 {
                budget.waiting.remove(key);
            }
        }
    }
}

impl fmt::Debug for BodyBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {TOTAL} bytes are taken", self.0.lock().taken)
    }
}
