//! The world in which a case runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower_distributed_lock::LockStoreExt;

use tokio::time::Instant;
use tower_distributed_lock::store::{LockStore, WAITER_LIVENESS};
use tower_distributed_lock::testing::{Fault, Faults, FaultyStore};
use tower_distributed_lock::{
    LockClient, LockClientBuilder, LockError, LockKey, LockMode, MemoryStore, QuorumStore,
    RedisStore,
};

use super::apart::Apart;
use super::observed::{Ledger, Observed};
use super::{KEY, family};
use crate::support::{RedisCluster, RedisServer};

/// One store, and the clients that a case makes of it: each is what another process would be.
pub(super) struct Env {
    backing: Backing,
    is_far: bool,
    ledger: Arc<Ledger>,
    clients: Mutex<Vec<LockClient>>,
}

enum Backing {
    Memory(MemoryStore),
    Redis(Box<RedisServer>),
    /// Shared with other tests; what every name of this test begins with.
    Cluster(&'static RedisCluster, String),
    /// Three of them, of which a lock needs two.
    Quorum([MemoryStore; 3]),
}

/// The same store, so far away that questions overtake each other, and callers go while theirs is on its way.
fn far<S: LockStore>(store: S) -> FaultyStore<S> {
    let slow = Faults::none().chance(Fault::Slow, 1.0);
    FaultyStore::new(
        store,
        slow.delay(Duration::from_millis(2)),
        fastrand::u64(..),
    )
}

/// Runs `case` on the memory store. Time stands still while anybody works, and leaps while everybody waits.
pub(super) fn on_memory(mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    let store = Backing::Memory(MemoryStore::new());
    on_paused_time(Env::new(store, false), mode, case);
}

/// The same, with the store far enough away for questions to cross.
pub(super) fn on_distant(mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    let store = Backing::Memory(MemoryStore::new());
    on_paused_time(Env::new(store, true), mode, case);
}

/// Runs `case` on a quorum of memory stores, each at its own random distance.
pub(super) fn on_quorum(mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    let stores = Backing::Quorum(std::array::from_fn(|_| MemoryStore::new()));
    on_paused_time(Env::new(stores, true), mode, case);
}

fn on_paused_time(env: Env, mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(env, mode, case));
}

/// Runs `case` on a Redis server of its own, in real time and on several threads.
pub(super) fn on_redis(mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    in_real_time(async {
        let server = Box::new(RedisServer::start().await);
        run(Env::new(Backing::Redis(server), false), mode, case).await;
    });
}

/// Runs `case` on a Redis Cluster that it shares with others, under names of its own.
pub(super) fn on_cluster(mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    in_real_time(async {
        let prefix = format!("env-{}.", NEXT.fetch_add(1, Ordering::Relaxed));
        let cluster = Backing::Cluster(RedisCluster::shared().await, prefix);
        run(Env::new(cluster, false), mode, case).await;
    });
}

fn in_real_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}

async fn run(env: Env, mode: LockMode, case: impl AsyncFnOnce(&Env, LockMode)) {
    case(&env, mode).await;
    env.nothing_is_left().await;
}

impl Env {
    fn new(backing: Backing, is_far: bool) -> Self {
        Self {
            backing,
            is_far,
            ledger: Arc::default(),
            clients: Mutex::default(),
        }
    }

    /// A client like that of another process.
    pub(super) async fn client(&self) -> LockClient {
        self.client_with(|builder| builder).await
    }

    /// A client with other settings.
    pub(super) async fn client_with(
        &self,
        settings: impl FnOnce(LockClientBuilder) -> LockClientBuilder,
    ) -> LockClient {
        let builder = match &self.backing {
            Backing::Memory(store) if self.is_far => self.observe(far(store.clone())),
            Backing::Memory(store) => self.observe(store.clone()),
            Backing::Quorum(stores) => {
                self.observe(QuorumStore::new(stores.clone().map(far)).unwrap())
            }
            Backing::Redis(server) => {
                let store = RedisStore::connect(server.url()).await.unwrap();
                self.observe(store)
            }
            Backing::Cluster(cluster, prefix) => {
                let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
                self.observe(Apart::new(store, prefix))
            }
        };
        let client = settings(builder).build();
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// Does not keep the clients alive any longer.
    pub(super) fn forget_clients(&self) {
        self.clients.lock().unwrap().clear();
    }

    fn observe(&self, store: impl LockStore) -> LockClientBuilder {
        LockClient::builder(Observed::new(store, &self.ledger))
    }

    /// What the clients have asked so far.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A lease to be renewed or to lapse while the test looks on.
    pub(super) fn short_lease(&self) -> Duration {
        match self.backing {
            Backing::Memory(_) | Backing::Quorum(_) => Duration::from_secs(5),
            // In real time, on a machine that does other things, too.
            Backing::Redis(_) | Backing::Cluster(..) => Duration::from_secs(2),
        }
    }

    /// Long enough for everything that is on its way to arrive, and short next to every lease and every poll: for
    /// asserting that something does *not* happen, and as the length of a piece of work.
    pub(super) fn moment(&self) -> Duration {
        match self.backing {
            Backing::Memory(_) | Backing::Quorum(_) => Duration::from_millis(20),
            Backing::Redis(_) | Backing::Cluster(..) => Duration::from_millis(40),
        }
    }

    /// The longest that a wake-up may take to have its effect: less than the client's safety poll, so that a lost wake-up
    /// shows.
    pub(super) fn prompt(&self) -> Duration {
        match self.backing {
            Backing::Memory(_) | Backing::Quorum(_) => Duration::from_millis(200),
            Backing::Redis(_) | Backing::Cluster(..) => Duration::from_millis(700),
        }
    }

    /// Ends every hold on [`KEY`] behind its holder's back.
    pub(super) async fn steal(&self) {
        for hold in self.ledger.granted(&LockKey::new(KEY)) {
            match &self.backing {
                Backing::Memory(store) => store.release_one(&hold).await.map(drop).unwrap(),
                Backing::Quorum(stores) => {
                    for store in stores {
                        store.release_one(&hold).await.unwrap();
                    }
                }
                // As it vanishes in an eviction or a flush: nobody is told.
                Backing::Redis(server) => {
                    let mut redis = server.connection().await;
                    let gone = redis::cmd("DEL").arg(hold.key.as_str()).to_owned();
                    gone.exec_async(&mut redis).await.unwrap();
                }
                Backing::Cluster(cluster, prefix) => {
                    cluster.delete(&format!("{prefix}{}", hold.key)).await;
                }
            }
        }
    }

    /// Both modes of a family, as far as the store has them.
    pub(super) fn family(&self, mode: LockMode) -> [LockMode; 2] {
        match (&self.backing, family(mode)) {
            (Backing::Quorum(_), [LockMode::Reentrant, _]) => [LockMode::Reentrant; 2],
            (_, family) => family,
        }
    }

    /// Whether somebody who comes from elsewhere, and does not wait, finds [`KEY`] taken.
    pub(super) async fn is_taken(&self, mode: LockMode) -> bool {
        let stranger = self.client().await;
        match stranger.lock(KEY).mode(mode).wait(Duration::ZERO).await {
            Ok(guard) => {
                guard.release().await.unwrap();
                false
            }
            Err(LockError::Busy { .. }) => true,
            Err(error) => panic!("neither free nor taken: {error}"),
        }
    }

    /// Waits for a fact that nobody signals.
    pub(super) async fn until(&self, what: &str, mut probe: impl AsyncFnMut() -> bool) {
        let limit = match self.backing {
            // Whoever was granted by a majority is still remembered as waiting where it was refused.
            Backing::Quorum(_) => WAITER_LIVENESS + self.prompt(),
            // Shorter than a dead waiter's place and than every lease: what only lapses has been left behind.
            _ => Duration::from_millis(2500),
        };
        let over = Instant::now() + limit;
        while !probe().await {
            assert!(Instant::now() < over, "not in time: {what}");
            tokio::time::sleep(self.pause()).await;
        }
    }

    fn pause(&self) -> Duration {
        match self.backing {
            Backing::Memory(_) | Backing::Quorum(_) => Duration::from_millis(1),
            Backing::Redis(_) | Backing::Cluster(..) => Duration::from_millis(10),
        }
    }

    /// Asserts that the store is, or soon becomes, as empty as it was at first.
    pub(super) async fn store_is_empty(&self) {
        self.until("nothing is left in the store", async || {
            match &self.backing {
                Backing::Memory(store) => store.is_empty(),
                Backing::Quorum(stores) => stores.iter().all(MemoryStore::is_empty),
                Backing::Redis(server) => {
                    // Redisson keeps the counter of the fencing tokens for ever.
                    let mut keys = server.dump().await;
                    keys.retain(|key, _| !key.starts_with("redisson_lock_token:"));
                    keys.is_empty() && server.pubsub_channels().await.is_empty()
                }
                Backing::Cluster(cluster, prefix) => {
                    let mut keys = cluster.dump(prefix).await;
                    keys.retain(|key, _| !key.starts_with("redisson_lock_token:"));
                    keys.is_empty() && cluster.pubsub_channels(prefix).await.is_empty()
                }
            }
        })
        .await;
    }

    /// What every case ends with.
    async fn nothing_is_left(&self) {
        let clients = self.clients.lock().unwrap().clone();
        for client in &clients {
            self.until("no key is in use", async || client.keys_in_use() == 0)
                .await;
        }
        self.store_is_empty().await;
        drop(clients);
        self.forget_clients();
        if let Backing::Redis(server) = &self.backing {
            self.until("no connection is left", async || {
                server.client_list().await.is_empty()
            })
            .await;
        }
    }
}
