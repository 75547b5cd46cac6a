//! The two worlds in which every step runs.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::runtime::Runtime;
use tower_distributed_lock::store::{LockStore, Wakeups};
use tower_distributed_lock::{MemoryStore, RedisStore};

use super::Pair;
use super::clock::Clock;
use super::seen::{BREATH, Seen};
use super::step::{KEYS, LOCKS, LONG, Step, Who, sentinel};
use super::world::{World, runtimes};
use crate::support::{RedisServer, eventually};

/// The memory store and a Redis server, each with its own runtime: one with paused time, and one with real time.
pub(super) struct Worlds {
    paused: Runtime,
    memory: World<MemoryStore>,
    real: Runtime,
    redis: World<RedisStore>,
    server: RedisServer,
    clock: Clock,
    /// Wakes when every message before its own has been delivered.
    sentinel: Wakeups,
    /// The actors that have asked in this sequence.
    asked: BTreeSet<Who>,
}

impl Worlds {
    pub(super) fn new() -> Self {
        let (paused, real) = runtimes();
        let (server, store, clock, sentinel) = real.block_on(async {
            let server = RedisServer::start().await;
            let (store, sentinel) = connect(&server).await;
            let clock = Clock::new(server.connection().await);
            (server, store, clock, sentinel)
        });
        Self {
            paused,
            memory: World::new(MemoryStore::new()),
            real,
            redis: World::new(store),
            server,
            clock,
            sentinel,
            asked: BTreeSet::new(),
        }
    }

    /// Every actor leaves. Only records and withdrawals may remain.
    fn kept_after_all_left(&mut self) -> Option<String> {
        let asked = &self.asked;
        self.paused.block_on(self.memory.all_leave(asked));
        self.real.block_on(self.redis.all_leave(asked));
        let left = self.left();
        if self.real.block_on(self.clock.since()) >= BREATH {
            return None;
        }
        let remembered = |(key, expires): &(String, bool)| {
            let kinds = ["tower_lock_void:", "tower_lock_record:"];
            *expires && kinds.iter().any(|kind| key.starts_with(kind))
        };
        // The last stays while a tombstone may be there.
        let voids = |busy: &str| {
            let tag = busy.trim_start_matches("tower_lock_busy:");
            let void = format!("tower_lock_void:{tag}:");
            left.iter().any(|(key, _)| key.starts_with(&void))
        };
        let is_known = |(key, expires): &(String, bool)| {
            let is_for_permits =
                KEYS[LOCKS..].contains(&&**key) || key.starts_with("tower_lock_limit:");
            let is_busy = key.starts_with("tower_lock_busy:") && voids(key);
            *expires && (is_for_permits || is_busy)
        };
        let mut rest = left.clone();
        rest.retain(|entry| !is_known(entry));
        let alike = rest.iter().all(remembered) && rest.is_empty() == self.is_memory_empty();
        (!alike).then(|| format!("all have left, and this is left in Redis: {rest:?}"))
    }

    /// Only Redisson's fair queue has no expiry.
    fn lasting(&mut self) -> Option<String> {
        let mut left = self.left();
        left.retain(|(key, expires)| !expires && !is_redissons(key));
        (!left.is_empty()).then(|| format!("nothing ends this in Redis: {left:?}"))
    }

    /// After all expiries, nothing is left.
    fn kept_for_ever(&mut self, all_left: bool) -> Option<String> {
        self.take(&Step::Ticks(LONG));
        let mut left = self.left();
        left.retain(|(key, _)| all_left || !is_redissons(key));
        let empty = left.is_empty() && self.is_memory_empty();
        (!empty).then(|| format!("time is over, and this is left in Redis: {left:?}"))
    }

    /// Asserts that the server has only the subscription of its sentinel after every actor has left.
    pub(super) fn no_client_listens(&mut self) {
        let (server, limit) = (&self.server, Duration::from_secs(60));
        self.real.block_on(self.redis.all_leave(&self.asked));
        self.real
            .block_on(eventually("only the sentinel listens", limit, async || {
                server.pubsub_channels().await.len() == 1
            }));
    }

    /// The keys that are left in Redis, without token counters, and whether each expires.
    fn left(&mut self) -> Vec<(String, bool)> {
        let mut keys = self.real.block_on(self.clock.keys());
        keys.retain(|(key, _)| !key.starts_with("redisson_lock_token:"));
        keys
    }

    fn is_memory_empty(&mut self) -> bool {
        self.paused.block_on(async { self.memory.store.is_empty() })
    }
}

impl Pair for Worlds {
    const PERMITS: bool = true;

    fn begin(&mut self) {
        self.asked.clear();
        self.memory = World::new(MemoryStore::new());
        self.real.block_on(self.clock.begin());
        // A new store: the previous one may still serve dead actors of the previous sequence.
        let (store, sentinel) = self.real.block_on(connect(&self.server));
        (self.redis, self.sentinel) = (World::new(store), sentinel);
        self.real.block_on(self.clock.until_one_sentinel());
    }

    fn take(&mut self, step: &Step) -> Option<(Seen, Seen)> {
        self.asked.extend(step.asks().iter().map(|ask| ask.who));
        let time = step.time();
        let memory = self.paused.block_on(async {
            tokio::time::advance(time).await;
            let reply = self.memory.take(step).await;
            tokio::time::advance(after(step)).await;
            self.memory.look(reply).await
        });
        let redis = self.real.block_on(async {
            self.clock.pass(time).await;
            let reply = self.redis.take(step).await;
            if !after(step).is_zero() {
                tokio::time::sleep(after(step)).await;
                self.clock.pass(after(step)).await;
            }
            self.clock.deliver(&mut self.sentinel).await;
            let seen = self.redis.look(reply).await;
            (self.clock.since().await < BREATH).then_some(seen)
        });
        Some((memory, redis?))
    }

    fn end(&mut self, all_leave: bool) -> Option<String> {
        self.memory.listening.clear();
        self.redis.listening.clear();
        self.take(&Step::Ticks(0))?;
        self.paused.block_on(self.memory.no_limit_is_set());
        self.real.block_on(self.redis.no_limit_is_set());
        let kept = match all_leave {
            true => self.kept_after_all_left(),
            false => self.lasting(),
        };
        kept.or_else(|| self.kept_for_ever(all_leave))
    }
}

/// Whether it belongs to the fair queue, whose keys Redisson gives no expiry.
fn is_redissons(key: &str) -> bool {
    key.starts_with("redisson_lock_queue:") || key.starts_with("redisson_lock_timeout:")
}

/// How much time passes after a step: the turn of waiters outside the line is shorter than a step.
fn after(step: &Step) -> Duration {
    match step {
        Step::Release(_) | Step::ReleaseRecording(..) | Step::Withdraw(..) => {
            Duration::from_millis(6)
        }
        _ => Duration::ZERO,
    }
}

/// A store, and what wakes when every message before its own has been delivered to it.
async fn connect(server: &RedisServer) -> (RedisStore, Wakeups) {
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let sentinel = store.subscribe(&sentinel()).await.expect("it listens");
    (store, sentinel)
}
