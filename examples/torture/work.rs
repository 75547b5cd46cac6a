//! What every task of a worker does: random locks, until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower_distributed_lock::{
    Lease, LockClient, LockError, LockGuard, LockMode, LockRequest, Owner,
};

use crate::clock::now;
use crate::event::{Began, Ended, Ending, Event, Missed, Mode};
use crate::pulse::{Pulse, nanos};

/// How much longer than its wait an acquisition may take on a machine with too much to do.
const SLACK: Duration = Duration::from_secs(5);

/// What a single try may take.
const ONE_TRY: Duration = Duration::from_secs(2);

/// What all workers of a run have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Habits {
    pub(crate) keys: usize,
    pub(crate) tasks: usize,
    pub(crate) lease_ms: u64,
    /// Whether the store serves fair queues and fencing tokens.
    pub(crate) ordered: bool,
    /// Whether every release is taken for confirmed, as by a client that does not look: so that the check is seen to fail.
    pub(crate) gullible: bool,
}

impl Habits {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Every key, and whether it is a read-write lock.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (String, bool)> {
        let keys = 0..self.keys;
        keys.flat_map(|n| {
            [
                (format!("exclusive:{n}"), false),
                (format!("shared:{n}"), true),
            ]
        })
    }
}

/// Where events go.
pub(crate) type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// One task of a worker.
pub(crate) struct Task {
    pub(crate) locks: LockClient,
    pub(crate) habits: Habits,
    pub(crate) sink: Sink,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) random: Rng,
    pub(crate) pulse: Pulse,
    /// Names what this worker does; no two workers of a run count alike.
    pub(crate) numbers: Arc<AtomicU64>,
    /// An owner that two tasks share.
    pub(crate) shared: (Owner, u64),
}

/// A request, as it was drawn.
struct Wish {
    request: LockRequest,
    mode: LockMode,
    owner: u64,
    key: Option<String>,
    wait: Duration,
    max_hold: Option<Duration>,
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

    fn wish(&mut self) -> Wish {
        let random = &mut self.random;
        let shared = random.bool();
        // Most go where most are.
        let n = random.usize(..self.habits.keys) * random.usize(..2);
        let name = |n: usize| format!("{}:{n}", if shared { "shared" } else { "exclusive" });
        let mode = match (shared, random.u8(..10)) {
            (true, 0..6) => LockMode::Read,
            (true, _) => LockMode::Write,
            (false, 0..5) if self.habits.ordered => LockMode::Fair,
            (false, _) => LockMode::Reentrant,
        };
        let all = || (0..self.habits.keys).map(name);
        let (request, key) = match random.u8(..12) {
            0 => (self.locks.lock_all(all()), None),
            1 => (self.locks.lock_any(all()), None),
            _ => (self.locks.lock(name(n)), Some(name(n))),
        };
        let wait = [0, 100, 2_000, 20_000][random.usize(..4)];
        let wait = Duration::from_millis(wait);
        let lease = self.habits.lease();
        let lease = match random.u8(..8) {
            0 => Lease::Fixed(lease),
            _ => Lease::Renewed(lease),
        };
        let max_hold = (random.u8(..16) == 0).then(|| Duration::from_millis(random.u64(20..1_000)));
        let mut request = request.mode(mode).wait(wait).lease(lease);
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        if self.habits.ordered && mode.is_exclusive() && random.u8(..3) == 0 {
            request = request.fenced();
        }
        let mut owner = self.number();
        if key.is_some() && self.random.u8(..5) == 0 {
            request = request.owner(&self.shared.0);
            owner = self.shared.1;
        }
        Wish {
            request,
            mode,
            owner,
            key,
            wait,
            max_hold,
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
                self.broken("S9", format!("an error that nobody expects: {error:?}"));
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

    /// Works: nearly always shortly, now and then for longer than a lease.
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
        // Looked at later than `to`: what was held then was held at `to`.
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
        let stood = self.pulse.stood() - stood;
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

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// In good weather everything can be had, and nothing is left.
pub(crate) async fn leave(locks: &LockClient, habits: &Habits, sink: &Sink) {
    let broken = |promise: &str, text: String| {
        sink(Event::Broken {
            promise: promise.into(),
            text,
        });
    };
    for (key, shared) in habits.keys() {
        let mode = match shared {
            true => LockMode::Write,
            false => LockMode::Reentrant,
        };
        let request = locks.lock(&*key).mode(mode).wait(Duration::from_secs(30));
        let released = match request.await {
            Ok(guard) => guard.release().await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            broken("L6", format!("{key} cannot be had at the end: {error:?}"));
        }
    }
    let idle = async {
        while locks.keys_in_use() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(Duration::from_secs(30), idle).await.is_err() {
        broken(
            "L8",
            format!("{} keys are in use for ever", locks.keys_in_use()),
        );
    }
    if let Err(error) = locks.shutdown(Duration::from_secs(30)).await {
        broken(
            "L8",
            format!("the client does not come to its end: {error:?}"),
        );
    }
    sink(Event::Done);
}
