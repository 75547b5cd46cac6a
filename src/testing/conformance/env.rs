//! The environment of a case.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::time::Instant;

use super::observed::{Calls, RecordingStore};
use super::{Clock, KEY, Testbed, family};
use crate::lock::Hold;
use crate::store::{DynStore, LATENESS, erase};
use crate::{
    LockClient, LockClientBuilder, LockError, LockGuard, LockKey, LockMode, LockRequest, Owner,
};

/// One testbed, and the clients of a case: each stands for another process.
pub struct Env {
    testbed: Box<dyn DynTestbed>,
    clock: Clock,
    settles: Duration,
    /// Long enough for everything under way to arrive, and short compared with every lease and every poll: for asserting
    /// that something does *not* happen, and as the length of a piece of work.
    pub(super) moment: Duration,
    /// The modes of the store.
    pub(super) modes: &'static [LockMode],
    /// The record of the clients' questions.
    pub(super) calls: Arc<Calls>,
    /// Protects the clients of the case, which are only added.
    clients: Mutex<Vec<LockClient>>,
    /// Whether the store still remembers withdrawals at the end.
    remembers: Cell<bool>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("clock", &self.clock)
            .field("modes", &self.modes)
            .finish_non_exhaustive()
    }
}

/// A [`Testbed`] of any type, so that a case is compiled once.
trait DynTestbed {
    fn client(&self, calls: &Arc<Calls>) -> LocalBoxFuture<'_, LockClientBuilder>;
    fn store(&self) -> LocalBoxFuture<'_, Arc<dyn DynStore>>;
    fn steal<'a>(&'a self, hold: &'a Hold) -> LocalBoxFuture<'a, ()>;
    fn leftovers(&self) -> LocalBoxFuture<'_, Vec<String>>;
    fn connections(&self) -> LocalBoxFuture<'_, usize>;
}

impl<T: Testbed> DynTestbed for T {
    fn client(&self, calls: &Arc<Calls>) -> LocalBoxFuture<'_, LockClientBuilder> {
        let calls = calls.clone();
        Box::pin(async move {
            LockClient::builder(RecordingStore::new(Testbed::connect(self).await, &calls))
        })
    }

    fn store(&self) -> LocalBoxFuture<'_, Arc<dyn DynStore>> {
        Box::pin(async { erase(Testbed::connect(self).await) })
    }

    fn steal<'a>(&'a self, hold: &'a Hold) -> LocalBoxFuture<'a, ()> {
        Box::pin(Testbed::steal(self, hold))
    }

    fn leftovers(&self) -> LocalBoxFuture<'_, Vec<String>> {
        Box::pin(Testbed::leftovers(self))
    }

    fn connections(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(Testbed::connections(self))
    }
}

impl Env {
    pub(super) fn new<T: Testbed>(testbed: T, modes: &'static [LockMode]) -> Self {
        Self {
            testbed: Box::new(testbed),
            clock: T::CLOCK,
            settles: T::SETTLES,
            moment: T::MOMENT,
            modes,
            calls: Arc::default(),
            clients: Mutex::default(),
            remembers: Cell::new(false),
        }
    }

    /// A client that stands for another process.
    pub(super) async fn client(&self) -> LockClient {
        self.client_with(|builder| builder).await
    }

    /// A client with other settings.
    pub(super) async fn client_with(
        &self,
        settings: impl FnOnce(LockClientBuilder) -> LockClientBuilder,
    ) -> LockClient {
        let client = settings(self.testbed.client(&self.calls).await).build();
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// A store without a client.
    pub(super) async fn store(&self) -> Arc<dyn DynStore> {
        self.testbed.store().await
    }

    /// A hold of another process.
    pub(super) async fn held_elsewhere(&self, key: &str, mode: LockMode) -> LockGuard {
        let elsewhere = self.client().await;
        elsewhere.lock(key).mode(mode).await.unwrap()
    }

    /// A client, and its hold on [`KEY`].
    pub(super) async fn held_here(&self, mode: LockMode) -> (LockClient, LockGuard) {
        let here = self.client().await;
        let guard = here.lock(KEY).mode(mode).await.unwrap();
        (here, guard)
    }

    /// A request of another process for [`KEY`].
    pub(super) async fn request(&self, mode: LockMode) -> LockRequest {
        self.client().await.lock(KEY).mode(mode)
    }

    /// The same, with an owner: clones of the request are requests of one owner.
    pub(super) async fn owned(&self, mode: LockMode) -> LockRequest {
        self.request(mode).await.owner(&Owner::new())
    }

    /// Drops the clients.
    pub(super) fn forget_clients(&self) {
        self.clients.lock().unwrap().clear();
    }

    /// Whether the time of the test passes only while nothing else happens.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.clock, Clock::Paused)
    }

    /// A lease that is renewed or expires during the test.
    pub(super) fn short_lease(&self) -> Duration {
        self.millis(5000, 2000)
    }

    /// The longest that a wake-up may take to have its effect: less than the client's safety poll, so that a lost wake-up
    /// shows.
    pub(super) fn prompt(&self) -> Duration {
        self.millis(200, 700)
    }

    /// Ends every hold on [`KEY`] without its holder.
    pub(super) async fn steal(&self) {
        for hold in self.calls.granted(&LockKey::new(KEY)) {
            self.testbed.steal(&hold).await;
        }
    }

    /// Both modes of a family; where the store has one of them only, that one twice.
    pub(super) fn family(&self, mode: LockMode) -> [LockMode; 2] {
        match family(mode) {
            [one, other] if !self.modes.contains(&one) => [other; 2],
            [one, other] if !self.modes.contains(&other) => [one; 2],
            both => both,
        }
    }

    /// Whether a request of another client, without a wait, finds [`KEY`] taken.
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

    /// Polls for a condition that is not signalled.
    pub(super) async fn until(&self, what: &str, mut probe: impl AsyncFnMut() -> bool) {
        let over = Instant::now() + self.settles;
        while !probe().await {
            assert!(Instant::now() < over, "not in time: {what}");
            tokio::time::sleep(self.millis(1, 10)).await;
        }
    }

    /// A time on the paused clock, and on the real one of a busy machine.
    fn millis(&self, paused: u64, real: u64) -> Duration {
        Duration::from_millis(if self.is_paused() { paused } else { real })
    }

    /// Waits until no request of `locks` holds or waits.
    pub(super) async fn no_key_is_in_use(&self, locks: &LockClient) {
        let unused = async || locks.keys_in_use() == 0;
        self.until("no key is in use", unused).await;
    }

    /// Asserts that the store is, or soon becomes, as empty as at first.
    pub(super) async fn store_is_empty(&self) {
        let over = Instant::now() + self.settles;
        while let left @ [_, ..] = &*self.testbed.leftovers().await {
            assert!(Instant::now() < over, "left in the store: {left:#?}");
            tokio::time::sleep(self.millis(1, 10)).await;
        }
    }

    /// Lets the store forget withdrawals. In real time that takes minutes: the case ends before, and finds them in the store.
    pub(super) async fn forgets_withdrawals(&self) {
        match self.is_paused() {
            true => tokio::time::sleep(LATENESS).await,
            false => self.remembers.set(true),
        }
    }

    /// The assertions at the end of every case.
    pub(super) async fn nothing_is_left(&self) {
        let clients = self.clients.lock().unwrap().clone();
        for client in &clients {
            self.no_key_is_in_use(client).await;
        }
        if !self.remembers.get() {
            self.store_is_empty().await;
        }
        drop(clients);
        self.forget_clients();
        self.until("no connection is left", async || {
            self.testbed.connections().await == 0
        })
        .await;
    }
}
