//! The parts of every history: stores with faults, their callers, and an end at which nothing is left.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_distributed_lock::store::{Inspect, LockStore};
use tower_distributed_lock::{LockClient, Owner};
use tower_distributed_lock_testing::{Faults, FaultyStore, Tally};

use super::caller::Caller;
use super::checked_store::CheckedStore;
use super::checked_stores::CheckedStores;
use super::history::History;
use super::line::{CALLER, Line};
use super::log::Log;
use super::observed::{Judge, Observed};
use super::plan::Menu;
use super::waits::Waits;
use super::weather::Weather;
use crate::support::{Flaw, Flawed};

const CALLERS: usize = 3;
const ROUNDS: usize = 4;

/// The time after which every late request has arrived, and every lease has ended.
const QUIET: Duration = Duration::from_secs(15);

/// The time after which every withdrawal is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(130);

pub(super) type Store = FaultyStore<CheckedStore<Flawed>>;

pub(super) struct World {
    pub(super) random: Rng,
    pub(super) log: Arc<Log>,
    pub(super) checked_stores: Arc<CheckedStores>,
    pub(super) stores: Vec<Store>,
    weather: Weather,
    judge: Arc<Judge>,
    /// The number of callers so far.
    callers: usize,
}

/// What determines a history of a scenario.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) flaw: Flaw,
    pub(super) traced: bool,
}

/// A process that dies, and the time of its death.
pub(super) type Death = (usize, Duration);

impl World {
    /// `bound`: how long a free lock may remain untaken while a caller waits.
    pub(super) fn new(settings: Settings, stores: usize, bound: Option<Duration>) -> Self {
        let Settings { seed, weather, .. } = settings;
        let mut random = Rng::with_seed(seed);
        let log = Arc::new(Log::new(settings.traced));
        // A store that loses data also loses its waiters.
        let line = (weather.keeps_data() && stores == 1).then(|| Line::new(log.clone()));
        let waits = Arc::new(Waits::new(log.clone(), bound, line));
        let checked_store = |_| {
            let flawed = Flawed::new(settings.flaw);
            CheckedStore::new(flawed, log.clone(), waits.clone())
        };
        let of: Vec<_> = (0..stores).map(checked_store).collect();
        let faulty = |of: &CheckedStore<_>| {
            let faults = weather.faults();
            FaultyStore::new(of.clone(), faults, random.u64(..))
        };
        let stores = of.iter().map(faulty).collect();
        let checked_stores = Arc::new(CheckedStores::new(of));
        Self {
            judge: Arc::new(Judge {
                log: log.clone(),
                waits,
                checked_stores: checked_stores.clone(),
                keeps_data: weather.keeps_data(),
            }),
            random,
            log,
            checked_stores,
            stores,
            weather,
            callers: 0,
        }
    }

    /// The store of a process, under observation.
    pub(super) fn observed<S: LockStore>(&self, store: S, flaw: Flaw) -> Observed<S> {
        Observed::new(store, flaw).judged_by(&self.judge)
    }

    /// Adds the callers of one client.
    fn crowd(&mut self, locks: &LockClient, menu: Menu) -> JoinSet<()> {
        let mut callers = JoinSet::new();
        let shared = Owner::new();
        for _ in 0..CALLERS {
            let number = self.callers;
            self.callers += 1;
            let caller = Caller {
                name: format!("{}.{}", number / CALLERS, number % CALLERS),
                locks: locks.clone(),
                log: self.log.clone(),
                checked_stores: self.checked_stores.clone(),
                waits: self.judge.waits.clone(),
                menu,
                shared: shared.clone(),
                random: self.random.fork(),
            };
            callers.spawn(CALLER.scope(number, caller.run(ROUNDS)));
        }
        callers
    }

    /// Runs the callers of several processes on the first store. One process may die. Returns the clients of the others.
    pub(super) async fn processes(
        &mut self,
        count: usize,
        (flaw, menu): (Flaw, Menu),
        death: Option<Death>,
    ) -> Vec<LockClient> {
        let end = |_| self.observed(self.stores[0].clone(), flaw);
        let ends: Vec<_> = (0..count).map(end).collect();
        let client = |end: &Observed<Store>| LockClient::new(end.clone());
        let mut clients: Vec<_> = ends.iter().map(client).collect();
        let mut crowds = self.crowds(&clients, menu);
        if let Some((process, when)) = death {
            sleep(when).await;
            self.log.note(|| format!("process {process} dies"));
            if !crowds[process].is_empty() {
                self.log.count("killed");
            }
            ends[process].die();
            crowds.remove(process).shutdown().await;
            clients.remove(process);
        }
        for crowd in crowds {
            crowd.join_all().await;
        }
        clients
    }

    /// Adds the callers of each client.
    pub(super) fn crowds(&mut self, clients: &[LockClient], menu: Menu) -> Vec<JoinSet<()>> {
        let crowds = clients.iter().map(|locks| self.crowd(locks, menu));
        crowds.collect()
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
        let left = |checked_store: &CheckedStore<Flawed>| !checked_store.inner().store.is_empty();
        if self.checked_stores.iter().any(left) {
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
        for (checked_store, key) in self.checked_stores.keys() {
            let seen = checked_store.inner().inspect(&key).await.unwrap();
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
                let text = format!("{key} cannot be taken at the end: {error}");
                self.log.violated("L6", text);
            }
        }
    }

    fn tally(&self) -> Tally {
        let tallies = self.stores.iter().map(FaultyStore::tally);
        tallies.fold(Tally::default(), |sum, one| sum.plus(&one))
    }
}
