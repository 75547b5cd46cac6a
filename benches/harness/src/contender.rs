//! The measured ways to lock, with one interface.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use async_redis_lock::Locker;
use rlock::AcquireOptions;
use rlock::async_lock::RLock;
use rslock::LockManager;
use tokio::time::Instant;
use tower_distributed_lock::{LockClient, LockMode, MemoryStore, RedisStore};

use crate::redisson::Algorithm;

/// A way to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    /// This crate with its defaults; each release is awaited, and confirmed by the store.
    Confirmed,
    /// This crate; releases run in the background, as with `Confirm::Deadline`.
    Unconfirmed,
    /// This crate without hand-over inside the process.
    Alone,
    /// This crate with at most this many hand-overs in a row, without a time limit.
    Passing(u32),
    Write,
    Fair,
    Read,
    /// This crate, with so many permits.
    Permits(u32),
    ReadUnconfirmed,
    /// This crate with a client for each section, so that sections share only the connections.
    ReadUnshared,
    /// This crate on the memory store.
    Memory,
    /// Redisson's algorithm in Rust.
    Redisson,
    Rslock,
    Rlock,
    AsyncRedisLock,
}

impl Contender {
    pub(crate) const PASSING: [Self; 5] = [
        Self::Passing(1),
        Self::Passing(4),
        Self::Passing(16),
        Self::Passing(64),
        Self::Passing(256),
    ];

    const ALL: [Self; 13] = [
        Self::Confirmed,
        Self::Unconfirmed,
        Self::Alone,
        Self::Write,
        Self::Fair,
        Self::Read,
        Self::ReadUnconfirmed,
        Self::ReadUnshared,
        Self::Memory,
        Self::Redisson,
        Self::Rslock,
        Self::Rlock,
        Self::AsyncRedisLock,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passing(1) => "1 hand-over",
            Self::Passing(4) => "4 hand-overs",
            Self::Passing(16) => "16 hand-overs",
            Self::Passing(64) => "64 hand-overs",
            Self::Passing(_) => "256 hand-overs",
            Self::Confirmed => "ours",
            Self::Unconfirmed => "ours, unconfirmed",
            Self::Alone => "ours, no hand-over",
            Self::Write => "ours, write",
            Self::Fair => "ours, fair",
            Self::Read => "ours, read",
            Self::Permits(1) => "ours, 1 permit",
            Self::Permits(_) => "ours, 8 permits",
            Self::ReadUnconfirmed => "ours, read, unconfirmed",
            Self::ReadUnshared => "ours, read, unshared",
            Self::Memory => "ours, in memory",
            Self::Redisson => "Redisson's algorithm",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::AsyncRedisLock => "async-redis-lock",
        }
    }

    pub(crate) fn by_name(name: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter().chain(Self::PASSING);
        all.find(|contender| contender.name() == name)
            .with_context(|| format!("nothing is called {name}"))
    }

    pub(crate) async fn connect(self, url: &str) -> Result<Locks> {
        let ours = async || anyhow::Ok(LockClient::builder(RedisStore::connect(url).await?));
        Ok(match self {
            Self::Confirmed => Locks::ours(ours().await?.build(), LockMode::Reentrant),
            Self::Unconfirmed => Locks::Ours {
                client: ours().await?.build(),
                mode: LockMode::Reentrant,
                confirmed: false,
            },
            Self::Alone => Locks::ours(ours().await?.handovers(0).build(), LockMode::Reentrant),
            Self::Passing(times) => {
                let ours = ours().await?.handovers(times);
                Locks::ours(ours.build(), LockMode::Reentrant)
            }
            Self::Write => Locks::ours(ours().await?.build(), LockMode::Write),
            Self::Fair => Locks::ours(ours().await?.build(), LockMode::Fair),
            Self::Read => Locks::ours(ours().await?.build(), LockMode::Read),
            Self::Permits(limit) => Locks::ours(ours().await?.build(), LockMode::permits(limit)),
            Self::ReadUnconfirmed => Locks::Ours {
                client: ours().await?.build(),
                mode: LockMode::Read,
                confirmed: false,
            },
            Self::ReadUnshared => {
                let store = RedisStore::connect(url).await?;
                let clients = (0..UNSHARED).map(|_| LockClient::new(store.clone()));
                Locks::Unshared(clients.collect(), AtomicUsize::new(0))
            }
            Self::Memory => Locks::ours(LockClient::new(MemoryStore::new()), LockMode::Reentrant),
            Self::Redisson => Locks::Redisson(Algorithm::connect(url).await?),
            Self::Rslock => Locks::Rslock(LockManager::new(vec![url])),
            Self::Rlock => Locks::Rlock(RLock::new(url).await?),
            Self::AsyncRedisLock => Locks::AsyncRedisLock(Locker::from_redis_url(url).await?),
        })
    }
}

/// The times at which a critical section was requested, entered, and left; its lock is released
/// afterwards.
pub(crate) struct Section {
    pub(crate) asked: Instant,
    pub(crate) entered: Instant,
    pub(crate) left: Instant,
}

/// A connected contender.
pub(crate) enum Locks {
    Ours {
        client: LockClient,
        mode: LockMode,
        confirmed: bool,
    },
    /// Read locks, by one client after the other.
    Unshared(Vec<LockClient>, AtomicUsize),
    Redisson(Algorithm),
    Rslock(LockManager),
    Rlock(RLock),
    AsyncRedisLock(Locker),
}

/// The number of clients where sections must not share one: many more than there are concurrent sections.
const UNSHARED: usize = 1024;

/// The lease of peers that need one.
const LEASE: Duration = Duration::from_secs(30);

impl Locks {
    pub(crate) fn ours(client: LockClient, mode: LockMode) -> Self {
        Self::Ours {
            client,
            mode,
            confirmed: true,
        }
    }

    /// One critical section: waits for the lock, without a limit, holds it for `hold`, releases it.
    pub(crate) async fn section(&self, key: &str, hold: Duration) -> Result<Section> {
        let asked = Instant::now();
        match self {
            Self::Ours {
                client,
                mode,
                confirmed,
            } => {
                let guard = client
                    .lock(key)
                    .mode(*mode)
                    .wait(Duration::from_secs(60))
                    .acquire()
                    .await?;
                let section = stay(asked, hold).await;
                if *confirmed {
                    guard.release().await?;
                }
                Ok(section)
            }
            Self::Unshared(clients, next) => {
                let client = &clients[next.fetch_add(1, Ordering::Relaxed) % clients.len()];
                let guard = client.lock(key).mode(LockMode::Read).await?;
                let section = stay(asked, hold).await;
                guard.release().await?;
                Ok(section)
            }
            Self::Redisson(algorithm) => {
                let lock = algorithm.lock(key).await?;
                let section = stay(asked, hold).await;
                algorithm.unlock(lock).await?;
                Ok(section)
            }
            Self::Rslock(manager) => {
                let guard = manager.acquire(key, LEASE).await?;
                let section = stay(asked, hold).await;
                guard.release().await;
                Ok(section)
            }
            Self::Rlock(rlock) => {
                let options = AcquireOptions::default();
                let mut guard = rlock.acquire_mutex_with_options(key, options).await?;
                let section = stay(asked, hold).await;
                guard.release().await?;
                Ok(section)
            }
            Self::AsyncRedisLock(locker) => {
                let options = async_redis_lock::Options::new().timeout(None);
                let lock = locker.acquire_with_options(&options, key).await?;
                let section = stay(asked, hold).await;
                lock.release().await?;
                Ok(section)
            }
        }
    }
}

async fn stay(asked: Instant, hold: Duration) -> Section {
    let entered = Instant::now();
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    Section {
        asked,
        entered,
        left: Instant::now(),
    }
}
