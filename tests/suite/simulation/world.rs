//! The parts of every history: stores with faults, their callers, and an end at which nothing is left.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_distributed_lock::testing::{Faults, FaultyStore, Tally};
use tower_distributed_lock::{Inspect, LockClient, LockStore, MemoryStore, Owner};

use super::caller::Caller;
use super::flaw::Flaw;
use super::flawed::Flawed;
use super::history::History;
use super::line::{CALLER, Line};
use super::log::Log;
use super::plan::Menu;
use super::told::{Judge, Told};
use super::waits::Waits;
use super::weather::Weather;
use super::witness::Witness;
use super::witnesses::Witnesses;

const CALLERS: usize = 3;
const ROUNDS: usize = 4;

/// The time after which every late request has arrived, and every lease has ended.
const QUIET: Duration = Duration::from_secs(15);

/// The time after which every withdrawal is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(130);

pub(super) type Store = FaultyStore<Witness<Flawed<MemoryStore>>>;

pub(super) struct World {
    pub(super) random: Rng,
    pub(super) log: Arc<Log>,
    pub(super) witnesses: Arc<Witnesses>,
    pub(super) stores: Vec<Store>,
    weather: Weather,
    judge: Arc<Judge>,
    /// The number of callers so far.
    callers: usize,
}

/// The settings of a world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Genesis {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) flaw: Flaw,
    pub(super) traced: bool,
    pub(super) stores: usize,
    /// How long a free lock may remain untaken while a caller waits.
    pub(super) bound: Option<Duration>,
}

impl World {
    pub(super) fn new(genesis: Genesis) -> Self {
        let Genesis { seed, weather, .. } = genesis;
        let mut random = Rng::with_seed(seed);
        let log = Arc::new(Log::new(genesis.traced));
        // A store that loses data also loses its waiters.
        let line = (weather.keeps_data() && genesis.stores == 1).then(|| Line::new(log.clone()));
        let waits = Arc::new(Waits::new(log.clone(), genesis.bound, line));
        let witness = |_| {
            let flawed = Flawed::new(MemoryStore::new(), genesis.flaw);
            Witness::new(flawed, log.clone(), waits.clone())
        };
        let of: Vec<_> = (0..genesis.stores).map(witness).collect();
        let faulty = |of: &Witness<_>| {
            let faults = weather.faults();
            FaultyStore::new(of.clone(), faults, random.u64(..))
        };
        let stores = of.iter().map(faulty).collect();
        let witnesses = Arc::new(Witnesses::new(of));
        Self {
            judge: Arc::new(Judge {
                log: log.clone(),
                waits,
                witnesses: witnesses.clone(),
                keeps_data: weather.keeps_data(),
            }),
            random,
            log,
            witnesses,
            stores,
            weather,
            callers: 0,
        }
    }

    /// The store of a process, under observation.
    pub(super) fn told<S: LockStore>(&self, store: S, flaw: Flaw) -> Told<S> {
        Told::new(store, flaw).judged_by(&self.judge)
    }

    /// Adds the callers of one client.
    pub(super) fn crowd(&mut self, locks: &LockClient, menu: Menu) -> JoinSet<()> {
        let mut callers = JoinSet::new();
        let shared = Owner::new();
        for _ in 0..CALLERS {
            let number = self.callers;
            self.callers += 1;
            let caller = Caller {
                name: format!("{}.{}", number / CALLERS, number % CALLERS),
                locks: locks.clone(),
                log: self.log.clone(),
                witnesses: self.witnesses.clone(),
                waits: self.judge.waits.clone(),
                menu,
                shared: shared.clone(),
                random: self.random.fork(),
            };
            callers.spawn(CALLER.scope(number, caller.run(ROUNDS)));
        }
        callers
    }

    /// Ends the history: the faults end, and every caller gets every lock.
    pub(super) async fn end(self, clients: &[LockClient], menu: Menu) -> History {
        // Data is lost only before this, while there are faults.
        let tally = self.tally();
        self.calm_down().await;
        for locks in clients {
            if locks.keys_in_use() > 0 {
                let text = format!("{} keys are in use for ever", locks.keys_in_use());
                self.log.violated("L8", text);
            }
            self.everything_can_be_had(locks, menu).await;
        }
        sleep(FORGOTTEN).await;
        let left = |witness: &Witness<Flawed<MemoryStore>>| !witness.inner().inner().is_empty();
        if self.witnesses.iter().any(left) {
            self.log
                .violated("L8", "something is left in the store".into());
        }
        History::conclude(&self.log, self.weather, tally)
    }

    /// Ends the faults, and waits for the end of the leases.
    pub(super) async fn calm_down(&self) {
        for store in &self.stores {
            store.set(Faults::none());
            store.reconnect();
        }
        sleep(QUIET).await;
        for (witness, key) in self.witnesses.keys() {
            let seen = witness.inner().inspect(&key).await.unwrap();
            if seen.is_held() || !seen.waiters.is_empty() {
                self.log.violated("L8", format!("{key} is left: {seen:?}"));
            }
        }
    }

    async fn everything_can_be_had(&self, locks: &LockClient, menu: Menu) {
        for (key, mode) in menu.everything() {
            let request = locks.lock(key).mode(mode).wait(Duration::from_secs(5));
            let released = match request.await {
                Ok(guard) => guard.release().await,
                Err(error) => Err(error),
            };
            if let Err(error) = released {
                let text = format!("{key} cannot be had at the end: {error}");
                self.log.violated("L6", text);
            }
        }
    }

    fn tally(&self) -> Tally {
        let tallies = self.stores.iter().map(FaultyStore::tally);
        tallies.fold(Tally::default(), |sum, one| sum.plus(&one))
    }
}
