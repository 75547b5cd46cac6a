//! The servers and processes that both languages share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::AsyncTypedCommands;
use tokio::sync::Mutex;
use tower_distributed_lock::{Lease, LockClient, Owner, RedisStore};

use super::Party;
use super::redisson::{LIMIT, Redisson, Version};
use crate::support::{Dump, RedisServer, eventually};

/// The lease that Redisson's watchdog renews here.
pub(super) const WATCHDOG: Duration = Duration::from_secs(3);

/// The lease of our clients.
pub(super) const LEASE: Lease = Lease::Renewed(WATCHDOG);

/// A Redis server, a Redisson of each version, and this test's connections to them.
#[derive(Debug)]
pub(super) struct Meeting {
    place: Arc<Place>,
    store: RedisStore,
}

/// Processes that start too slowly for every test. Concurrent tests share them, and they end with the last of these
/// tests.
#[derive(Debug)]
struct Place {
    redissons: [Arc<Redisson>; 2],
    redis: RedisServer,
}

impl Place {
    async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Place>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(place) = shared.upgrade() {
            return place;
        }
        let place = Arc::new(Self::open().await);
        *shared = Arc::downgrade(&place);
        place
    }

    async fn open() -> Self {
        let redis = RedisServer::start().await;
        let [new, old] = Version::ALL.map(|version| Redisson::start(version, &redis, WATCHDOG));
        let (new, old) = tokio::join!(new, old);
        Self {
            redissons: [Arc::new(new), Arc::new(old)],
            redis,
        }
    }
}

impl Meeting {
    pub(super) async fn open() -> Self {
        let place = Place::shared().await;
        let store = RedisStore::connect(place.redis.url()).await;
        Self {
            store: store.expect("Redis is there"),
            place,
        }
    }

    pub(super) fn redis(&self) -> &RedisServer {
        &self.place.redis
    }

    pub(super) fn store(&self) -> RedisStore {
        self.store.clone()
    }

    pub(super) fn redisson(&self, version: Version) -> &Arc<Redisson> {
        let mut redissons = self.place.redissons.iter();
        let found = redissons.find(|redisson| redisson.version == version);
        found.expect("there is one of each version")
    }

    /// A thread that no other test uses.
    pub(super) fn java(&self, version: Version) -> Party {
        Party::Java(self.redisson(version).thread())
    }

    /// A client that no other test uses.
    pub(super) fn rust(&self) -> Party {
        Party::Rust(LockClient::new(self.store()), Owner::new())
    }

    /// A new owner in the process of `party`.
    pub(super) fn another(&self, party: &Party) -> Party {
        match party {
            Party::Java(thread) => self.java(thread.redisson.version),
            Party::Rust(..) => self.rust(),
        }
    }

    /// One party of each kind.
    pub(super) fn one_of_each(&self) -> Vec<Party> {
        let [new, old] = Version::ALL;
        vec![self.java(new), self.rust(), self.java(old)]
    }

    /// A client and a thread, for each version and in both orders.
    pub(super) fn pairs(&self) -> [(Party, Party); 4] {
        let [new, old] = Version::ALL;
        [
            (self.rust(), self.java(new)),
            (self.rust(), self.java(old)),
            (self.java(new), self.rust()),
            (self.java(old), self.rust()),
        ]
    }

    /// Two names that no other test uses, without and with braces.
    pub(super) fn names(&self) -> [String; 2] {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // No name is part of another.
        [format!("plain-{n}."), format!("{{tag-{n}}}.")]
    }

    /// One of them.
    pub(super) fn name(&self) -> String {
        self.names().into_iter().next_back().expect("there are two")
    }

    /// The keys of a lock in Redis.
    pub(super) async fn dump(&self, name: &str) -> Dump {
        let mut dump = self.redis().dump().await;
        dump.retain(|key, _| key.contains(name));
        dump
    }

    /// The time to live of the lock.
    pub(super) async fn ttl(&self, name: &str) -> Option<Duration> {
        self.dump(name).await.get(name)?.ttl
    }

    /// Waits until each of these locks has this number of subscribers, and then for the time that they need to sleep.
    pub(super) async fn until_waiting<'n>(
        &self,
        locks: impl IntoIterator<Item = (&'n String, usize)>,
    ) {
        const ASLEEP: Duration = Duration::from_millis(200);
        let locks: Vec<_> = locks.into_iter().collect();
        eventually("those who wait listen", LIMIT, async || {
            let channels = self.redis().pubsub_channels().await;
            let listeners = |name: &String| {
                let of_lock = channels
                    .iter()
                    .filter(|(channel, _)| channel.contains(name));
                of_lock.map(|(_, listeners)| listeners).sum::<usize>()
            };
            let missing = locks.iter().find(|(name, count)| listeners(name) < *count);
            missing.map_or(Ok(()), Err)
        })
        .await;
        tokio::time::sleep(ASLEEP).await;
    }

    /// Waits until `count` parties queue fairly for the lock.
    pub(super) async fn until_queued(&self, name: &str, count: usize) {
        eventually("the queue grows", LIMIT, async || {
            let queued = self.queue(name).await.len();
            if queued == count { Ok(()) } else { Err(queued) }
        })
        .await;
    }

    /// The ids of the waiters in the fair queue.
    pub(super) async fn queue(&self, name: &str) -> Vec<String> {
        let mut connection = self.redis().connection().await;
        let queued = connection.lrange(aux("redisson_lock_queue", name), 0, -1);
        queued.await.expect("it is a list")
    }

    /// Without holders and waiters, no key and no subscriber is left, except the token counter, which remains on purpose,
    /// and keys that Redisson lets expire.
    pub(super) async fn nothing_is_left<'n>(&self, names: impl IntoIterator<Item = &'n String>) {
        // Shorter than the expiry of any key that was left by mistake.
        const SOONER: Duration = Duration::from_millis(2500);
        let names: Vec<_> = names.into_iter().collect();
        let ours = |key: &String| {
            names.iter().any(|name| key.contains(*name))
                && !key.starts_with("redisson_lock_token:")
                && !key.starts_with("redisson_unlock_latch:")
        };
        eventually("Redis forgets the locks", SOONER, async || {
            let left: BTreeSet<_> = self.redis().dump().await.into_keys().filter(ours).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
        // Subscriptions do not expire.
        eventually("Redis forgets the listeners", LIMIT, async || {
            let channels = self.redis().pubsub_channels().await;
            let left: BTreeSet<_> = channels.into_keys().filter(ours).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }
}

/// A key that Redisson keeps beside a lock (PROTOCOL 1.0).
pub(super) fn aux(prefix: &str, name: &str) -> String {
    match name.contains('{') {
        true => format!("{prefix}:{name}"),
        false => format!("{prefix}:{{{name}}}"),
    }
}
