//! What a case works with.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, sleep};

use super::asked::Asked;
use super::process::{Process, rival};
use super::recording::{Gate, Recording, RecordingStore};
use super::{Clock, KEY, Testbed};
use tower_distributed_lock::client::LockClientBuilder;
use tower_distributed_lock::lock::{Hold, Lease};
use tower_distributed_lock::store::LATENESS;
use tower_distributed_lock::{LockClient, LockError, LockMode};

/// What a case gets: the store of a testbed, and two clients, which stand for two processes.
#[derive(Debug)]
pub struct Harness {
    pub(super) here: Process,
    pub(super) elsewhere: Process,
    environment: Environment,
}

impl Harness {
    pub(super) async fn new<T: Testbed>(
        testbed: T,
        modes: &'static [LockMode],
        mode: LockMode,
    ) -> Self {
        let environment = Environment {
            testbed: Box::new(testbed),
            settles: T::SETTLES,
            is_paused: matches!(T::CLOCK, Clock::Paused(_)),
            moment: T::MOMENT,
            modes,
            mode,
            asked: Arc::default(),
            processes: RefCell::default(),
            remembers: Cell::new(false),
        };
        let (here, elsewhere) = (environment.process().await, environment.process().await);
        Self {
            here,
            elsewhere,
            environment,
        }
    }

    pub(super) fn both(&self) -> [&Process; 2] {
        [&self.here, &self.elsewhere]
    }

    /// The assertions at the end of every case.
    pub(super) async fn nothing_is_left(self) {
        let Self {
            here,
            elsewhere,
            environment,
        } = self;
        let processes = environment.processes.take();
        for process in &processes {
            environment.no_key_is_in_use(process).await;
        }
        // While the processes live: their end would remove what they have left.
        if !environment.remembers.get() {
            environment.store_is_empty().await;
        }
        drop((here, elsewhere, processes));
        let closed = async || environment.testbed.connections().await == 0;
        environment.until("no connection is left", closed).await;
    }
}

impl Deref for Harness {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.environment
    }
}

/// A testbed, and what happens there.
pub struct Environment {
    testbed: Box<dyn DynTestbed>,
    settles: Duration,
    /// Whether the time of the test passes only while nothing else happens.
    pub(super) is_paused: bool,
    /// Long enough for everything under way to arrive, and short compared with every lease and every poll: for asserting
    /// that something does *not* happen, and as the length of a piece of work.
    pub(super) moment: Duration,
    /// The modes of the store.
    pub(super) modes: &'static [LockMode],
    /// The mode of the case.
    pub(super) mode: LockMode,
    asked: Arc<Mutex<Recording>>,
    /// The processes of the case.
    processes: RefCell<Vec<Process>>,
    /// Whether the store still remembers withdrawals at the end.
    remembers: Cell<bool>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// A [`Testbed`] of any type, so that a case is compiled once.
trait DynTestbed {
    fn store(&self) -> LocalBoxFuture<'_, Arc<dyn Asked>>;
    fn steal<'a>(&'a self, hold: &'a Hold) -> LocalBoxFuture<'a, ()>;
    fn leftovers(&self) -> LocalBoxFuture<'_, Vec<String>>;
    fn connections(&self) -> LocalBoxFuture<'_, usize>;
}

impl<T: Testbed> DynTestbed for T {
    fn store(&self) -> LocalBoxFuture<'_, Arc<dyn Asked>> {
        Box::pin(async { Arc::new(self.connect().await) as Arc<dyn Asked> })
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

impl Environment {
    /// A further process.
    pub(super) async fn process(&self) -> Process {
        self.process_with(|builder| builder).await
    }

    /// The same with other settings of its client.
    pub(super) async fn process_with(
        &self,
        settings: impl FnOnce(LockClientBuilder) -> LockClientBuilder,
    ) -> Process {
        let locks = settings(LockClient::builder(self.store().await)).build();
        let process = Process::new(locks, self.mode);
        self.processes.borrow_mut().push(process.clone());
        process
    }

    /// A further process, which may be paused.
    pub(super) async fn process_behind_a_gate(&self) -> (Process, Gate) {
        let store = self.store().await;
        let gate = store.gate();
        let process = Process::new(LockClient::new(store), self.mode);
        self.processes.borrow_mut().push(process.clone());
        (process, gate)
    }

    /// A store without a client.
    pub(super) async fn store(&self) -> RecordingStore {
        RecordingStore::new(self.testbed.store().await, self.asked.clone())
    }

    /// What all of them have asked the store.
    pub(super) fn asked(&self) -> MutexGuard<'_, Recording> {
        self.asked.lock().unwrap()
    }

    /// Forgets the processes: those that the case has dropped end.
    pub(super) fn forget_processes(&self) {
        self.processes.take();
    }

    /// The time of a lease that is renewed or expires during the test.
    pub(super) fn short_lease(&self) -> Duration {
        self.millis(5000, 2000)
    }

    /// Such a lease, which is renewed.
    pub(super) fn renewed(&self) -> Lease {
        Lease::Renewed(self.short_lease())
    }

    /// Such a lease, which expires.
    pub(super) fn fixed(&self) -> Lease {
        Lease::Fixed(self.short_lease())
    }

    /// The longest that a wake-up may take to have its effect: less than the client's safety poll, so that a lost wake-up
    /// shows.
    pub(super) fn prompt(&self) -> Duration {
        self.millis(200, 700)
    }

    /// Ends every hold on [`KEY`] without its holder.
    pub(super) async fn steal(&self) {
        let granted = self.asked().granted.clone();
        for hold in granted.iter().filter(|hold| hold.key.as_str() == KEY) {
            self.testbed.steal(hold).await;
        }
    }

    /// Both modes of the family of the case; where the store has one of them only, that one twice.
    pub(super) fn family(&self) -> [LockMode; 2] {
        let family = self.mode.family();
        let mut family = self.modes.iter().filter(|mode| mode.family() == family);
        let one = *family.next().unwrap_or(&self.mode);
        [one, *family.next().unwrap_or(&one)]
    }

    /// Whether the store has a hold on [`KEY`] that excludes the other modes.
    pub(super) async fn is_taken(&self) -> bool {
        self.refuses(rival(self.mode)).await
    }

    /// Whether a request of a further process, without a wait, finds [`KEY`] taken.
    pub(super) async fn refuses(&self, mode: LockMode) -> bool {
        let stranger = self.process().await;
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
            sleep(self.millis(1, 10)).await;
        }
    }

    /// A time on the paused clock, and on the real one of a busy machine.
    fn millis(&self, paused: u64, real: u64) -> Duration {
        Duration::from_millis(if self.is_paused { paused } else { real })
    }

    /// Waits until no request of the process holds or waits.
    pub(super) async fn no_key_is_in_use(&self, process: &Process) {
        let unused = async || process.keys_in_use() == 0;
        self.until("no key is in use", unused).await;
    }

    /// Asserts that the store is, or soon becomes, as empty as at first.
    pub(super) async fn store_is_empty(&self) {
        let over = Instant::now() + self.settles;
        while let left @ [_, ..] = &*self.testbed.leftovers().await {
            assert!(Instant::now() < over, "left in the store: {left:#?}");
            sleep(self.millis(1, 10)).await;
        }
    }

    /// Lets the store forget withdrawals. In real time that takes minutes: the case ends before, and finds them in the store.
    pub(super) async fn forgets_withdrawals(&self) {
        match self.is_paused {
            true => sleep(LATENESS).await,
            false => self.remembers.set(true),
        }
    }
}
