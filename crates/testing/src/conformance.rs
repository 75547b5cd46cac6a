//! The promises of every store, as tests: a store of another crate runs them with one macro call.
//!
//! A [`Testbed`] makes the store of a test, and reports what is left when the test ends.
//! [`conformance!`](macro@crate::conformance) makes the tests: one for each case and each mode that the store has, so
//! that the name of a failed test contains the promise and the mode. The stores of this crate run the same cases.
//!
//! ```
//! use tower_distributed_lock::MemoryStore;
//! use tower_distributed_lock_testing::conformance::{Clock, Testbed};
//!
//! /// A clone of a `MemoryStore` is another process's way to the same holds.
//! struct Memory(MemoryStore);
//!
//! impl Testbed for Memory {
//!     type Store = MemoryStore;
//!     // Its leases follow tokio's clock.
//!     const CLOCK: Clock = Clock::Paused(|| {
//!         let mut runtime = tokio::runtime::Builder::new_current_thread();
//!         runtime.enable_all().start_paused(true).build().expect("a runtime")
//!     });
//!
//!     async fn start() -> Self {
//!         Self(MemoryStore::new())
//!     }
//!
//!     async fn connect(&self) -> MemoryStore {
//!         self.0.clone()
//!     }
//!
//!     async fn leftovers(&self) -> Vec<String> {
//!         let left = (!self.0.is_empty()).then(|| "a hold, a waiter or a listener".to_owned());
//!         left.into_iter().collect()
//!     }
//! }
//!
//! mod memory {
//!     tower_distributed_lock_testing::conformance!(super::Memory: reentrant fair read write permit, fenced, records, line);
//! }
//! # fn main() {}
//! ```
//!
//! # What the author of a store does
//!
//! 1. Take this crate under `[dev-dependencies]`, and tokio with its feature `test-util` if the store follows tokio's clock.
//! 2. Implement [`Testbed`]. Each test starts its own testbed: an empty database, a server on a free port, a prefix that no other
//!    test uses.
//! 3. Call the macro in a separate module. The call names the modes of the store, whether it is `fenced`, whether it keeps
//!    `records`, and whether waiting processes form a [`line`](tower_distributed_lock::store::Attempt::in_line). One of the tests,
//!    `the_claim_is_what_the_store_can_do`, compares that with the store's
//!    [`capabilities`](tower_distributed_lock::store::LockStore::capabilities): so nothing is left out by mistake. `Read` and `Write`
//!    belong together.
//! 4. Run `cargo test`. Each test has its own runtime.
//!
//! The mode `permit` is a limit of one, under which permits promise what an exclusive mode does. Cases of their own have
//! other limits.
//!
//! # What is not asked
//!
//! Most cases go through [`LockClient`](tower_distributed_lock::LockClient); those of the contract ask the store itself. None covers failures of the
//! store's servers, such as restarts and network partitions. [`FaultyStore`](super::FaultyStore) around the store injects faults of
//! the network.

use std::time::Duration;

use tokio::runtime::Runtime;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Feature, LockStore};
use uuid::Uuid;

mod asked;
#[expect(missing_docs, reason = "the name of a case says what it promises")]
pub mod cases;
mod critical_section;
mod harness;
mod process;
mod recording;
mod suite;
mod waiter;

pub use critical_section::CriticalSection;
pub use harness::Harness;
pub use suite::CaseGroup;

/// The key of most cases.
const KEY: &str = "account:42";

/// The environment of one test: a place for holds that no other test uses.
///
/// Dropping it ends everything that it started. See the [module](self) for an example.
pub trait Testbed: Sized + 'static {
    /// The tested store.
    type Store: LockStore;

    /// The clock of the store's leases.
    const CLOCK: Clock = Clock::Real;

    /// How long an ended hold, waiter or subscription may still be visible in the store. The default is shorter than the time for
    /// which a dead waiter keeps its place, and than every lease, so that entries that only expire are found.
    const SETTLES: Duration = Duration::from_millis(2500);

    /// Long next to the time that the store takes to answer, and short next to a second: the time of a piece of work, and for
    /// which a test looks on while nothing may happen.
    const MOMENT: Duration = match Self::CLOCK {
        Clock::Paused(_) => Duration::from_millis(20),
        Clock::Real => Duration::from_millis(40),
    };

    /// Sets up an empty place.
    fn start() -> impl Future<Output = Self>;

    /// A store that stands for another process: it shares all holds with the others, and nothing else.
    fn connect(&self) -> impl Future<Output = Self::Store>;

    /// The name of each hold, waiter and subscription that is left. Counters of fencing tokens may remain.
    fn leftovers(&self) -> impl Future<Output = Vec<String>>;

    /// The number of open connections of stores, if the testbed can count them. Each case ends with none.
    fn connections(&self) -> impl Future<Output = usize> {
        async { 0 }
    }

    /// Ends `hold` without its holder. The default releases it through another store, which wakes its waiters, unlike an
    /// eviction.
    fn steal(&self, hold: &Hold) -> impl Future<Output = ()> {
        async {
            let released = self.connect().await.release(hold, None).await;
            released.expect("a hold can be released");
        }
    }
}

/// The clock of a store's leases.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Clock {
    /// Tokio's clock, paused: time jumps when every task waits, so that a test of minutes takes milliseconds. For stores in this
    /// process. The function makes the runtime of a test, which has one thread and begins
    /// [paused](tokio::runtime::Builder::start_paused).
    Paused(fn() -> Runtime),
    /// The real clock, for other stores. The tests run on two threads.
    Real,
}

/// Runs one case in one mode, as each test that the macro makes does. `modes` are those of the store.
///
/// # Panics
///
/// If the case fails.
pub fn run<T: Testbed>(
    modes: &'static [LockMode],
    mode: LockMode,
    case: impl AsyncFnOnce(&Harness),
) {
    on::<T>(async {
        let env = Harness::new(T::start().await, modes, mode).await;
        case(&env).await;
        env.nothing_is_left().await;
    });
}

/// Compares the store's capabilities with the call of the macro.
///
/// # Panics
///
/// If they differ.
pub fn claim<T: Testbed>(modes: &'static [LockMode], claims: &[&str]) {
    use LockMode::{Fair, Read, Reentrant, Write};
    let permit = LockMode::permits(1);
    on::<T>(async {
        let testbed = T::start().await;
        let store = testbed.connect().await;
        let can = store.capabilities();
        for mode in [Reentrant, Fair, Read, Write, permit] {
            let has = can.check(Feature::Mode(mode)).is_ok();
            assert_eq!(has, modes.contains(&mode), "{mode:?}: store, claim");
        }
        let nothing = Hold {
            key: KEY.into(),
            mode: modes[0],
            id: HoldId::new(Uuid::nil(), 1),
        };
        let released = store.release(&nothing, None).await;
        let released = released.expect("a release of nothing is answered");
        for (claim, has) in [
            ("fenced", can.check(Feature::Fencing).is_ok()),
            ("records", can.check(Feature::Records).is_ok()),
            ("line", released.in_line),
        ] {
            assert_eq!(has, claims.contains(&claim), "{claim}: store, claim");
        }
        let [reads, writes] = [LockMode::Read, LockMode::Write].map(|mode| modes.contains(&mode));
        assert_eq!(reads, writes, "`Read` and `Write` come together");
    });
}

/// Runs a test on the clock of its testbed.
fn on<T: Testbed>(test: impl Future<Output = ()>) {
    let runtime = match T::CLOCK {
        Clock::Paused(runtime) => runtime(),
        Clock::Real => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime"),
    };
    runtime.block_on(test);
}
