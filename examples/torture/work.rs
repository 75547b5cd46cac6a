//! A task of a worker: takes random locks until it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower_distributed_lock::{LockClient, LockError, LockGuard, LockMode, Owner};

use crate::clock::now;
use crate::event::{Began, Ended, Ending, Event, Missed, Mode};
use crate::habits::Habits;
use crate::pulse::{Pulse, nanos};
use crate::wish::Wish;

/// How much longer than its wait an acquisition may take on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// The time limit of a single attempt.
const ONE_TRY: Duration = Duration::from_secs(2);

/// The receiver of events.
pub(crate) type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// One task of a worker.
pub(crate) struct Task {
    pub(crate) locks: LockClient,
    pub(crate) habits: Habits,
    pub(crate) sink: Sink,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) random: Rng,
    pub(crate) pulse: Pulse,
    /// Numbers of this worker's sections, different from those of all other workers.
    pub(crate) numbers: Arc<AtomicU64>,
    /// An owner that two tasks share.
    pub(crate) shared: (Owner, u64),
}

struct Held {
    guard: LockGuard,
    ids: Vec<u64>,
    from: u64,
    max_hold: Option<Duration>,
}

impl Task {
    pub(crate) async fn run(mut self) {
        while !*self.stop.borrow() {
            let wish = self.wish();
            let (again, owner, mode) = (wish.key.clone(), wish.owner, wish.mode);
            if let Some(held) = self.take(wish).await {
                self.hold().await;
                if let Some(key) = again.filter(|_| owner == self.shared.1 && self.random.bool()) {
                    self.enter_again(key, mode).await;
                }
                self.end(held).await;
            }
            sleep(Duration::from_micros(self.random.u64(..20_000))).await;
        }
    }

    /// Re-enters what its owner holds, and leaves.
    async fn enter_again(&mut self, key: String, mode: LockMode) {
        let wish = Wish {
            request: self.locks.lock(&*key).mode(mode).owner(&self.shared.0),
            mode,
            owner: self.shared.1,
            key: Some(key),
            wait: Duration::from_secs(30),
            max_hold: None,
        };
        if let Some(held) = self.take(wish).await {
            self.end(held).await;
        }
    }

    async fn take(&mut self, wish: Wish) -> Option<Held> {
        let patience = match self.random.u8(..6) {
            0 => Duration::from_micros(self.random.u64(..50_000)),
            _ => Duration::from_secs(3_600),
        };
        let (asked, stood) = (now(), self.pulse.stood());
        let answer = timeout(patience, wish.request.acquire()).await;
        let from = now();
        self.look_at_the_wait(asked, stood, from, wish.wait);
        let missed = match answer {
            Ok(Ok(guard)) => {
                let ids = self.began(&guard, wish.owner, asked, from);
                let max_hold = wish.max_hold;
                return Some(Held {
                    guard,
                    ids,
                    from,
                    max_hold,
                });
            }
            Err(_) => Missed::Cancelled,
            Ok(Err(LockError::Busy { .. } | LockError::Overloaded)) => Missed::Busy,
            Ok(Err(LockError::Unavailable(_))) => Missed::Unavailable,
            Ok(Err(LockError::Lost | LockError::Upgrade | LockError::Invalid(_))) => Missed::Other,
            Ok(Err(error)) => {
                self.broken("S9", format!("an unexpected error: {error:?}"));
                Missed::Other
            }
        };
        (self.sink)(Event::Missed(missed));
        None
    }

    fn began(&self, guard: &LockGuard, owner: u64, asked: u64, from: u64) -> Vec<u64> {
        let several = guard.keys().count() > 1;
        let token = guard.fencing_token().filter(|_| !several);
        let began = guard.keys().map(|key| {
            let id = self.number();
            (self.sink)(Event::Began(Began {
                id,
                key: key.as_str().to_owned(),
                mode: Mode::from(guard.mode()),
                owner,
                asked,
                from,
                token: token.map(|token| token.value()),
            }));
            id
        });
        began.collect()
    }

    /// Works: usually for a short time, sometimes for longer than a lease.
    async fn hold(&mut self) {
        let micros = match self.random.u8(..200) {
            0 => self.random.u64(..2 * self.habits.lease_ms * 1_000),
            1..10 => self.random.u64(..50_000),
            _ => self.random.u64(..3_000),
        };
        sleep(Duration::from_micros(micros)).await;
    }

    async fn end(&mut self, held: Held) {
        let to = now();
        // Checked after `to`: a hold that is held now was held at `to`.
        let is_held = !held.guard.is_lost();
        if let Some(max_hold) = held.max_hold
            && is_held
            && to - held.from > nanos(max_hold)
        {
            self.broken("L9", format!("still held after {max_hold:?}"));
        }
        let ending = match self.random.u8(..10) {
            0 if !self.habits.gullible => {
                drop(held.guard);
                Ending::Dropped
            }
            _ => match held.guard.release().await {
                _ if self.habits.gullible => Ending::Confirmed,
                Ok(()) => Ending::Confirmed,
                Err(LockError::Lost) => Ending::Lost,
                Err(_) => Ending::Unknown,
            },
        };
        let answered = now();
        for id in held.ids {
            (self.sink)(Event::Ended(Ended {
                id,
                to,
                held: is_held,
                ending,
                answered,
            }));
        }
    }

    fn look_at_the_wait(&self, asked: u64, stood: u64, from: u64, wait: Duration) {
        let budget = if wait.is_zero() { ONE_TRY } else { wait };
        let stood = self.pulse.stood().saturating_sub(stood);
        if (from - asked).saturating_sub(stood) > nanos(budget + SLACK) {
            let waited = Duration::from_nanos(from - asked);
            self.broken("L4", format!("waited {waited:?}, not {budget:?}"));
        }
    }

    fn broken(&self, promise: &str, text: String) {
        (self.sink)(Event::Broken {
            promise: promise.into(),
            text,
        });
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
