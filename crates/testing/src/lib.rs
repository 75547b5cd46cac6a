//! For tests: a store with injected faults of networks and servers, and the tests that every store must pass.
//!
//! The tests for a store of your own are in [`mod@conformance`].
//!
//! [`FaultyStore`] wraps any [`LockStore`](tower_distributed_lock::LockStore) and injects faults into a share of the calls: requests that
//! are lost, late or delivered twice, answers that are lost, connections that break, servers that lose data. A seed
//! determines the faults, so a failure can be reproduced. The simulation of this crate runs on it.
//!
//! The crate belongs under `[dev-dependencies]`.
//!
//! # What to test with it
//!
//! **A loss at a chosen time.** [`FaultyStore::flush`], [`disconnect`](FaultyStore::disconnect) and
//! [`reconnect`](FaultyStore::reconnect) take effect when they are called:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_distributed_lock_testing::{FaultyStore, Faults};
//! use tower_distributed_lock::{LockClient, LockError, MemoryStore};
//!
//! let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
//! let locks = LockClient::new(store.clone());
//!
//! let guard = locks.lock("invoice:7").await?;
//! store.flush().await; // as when a server without persistence crashes
//! // … what does your handler do now?
//! assert!(matches!(guard.release().await, Err(LockError::Lost)));
//!
//! store.disconnect();
//! assert!(matches!(locks.lock("invoice:7").await, Err(LockError::Unavailable(_))));
//! store.reconnect();
//! locks.lock("invoice:7").await?.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **All faults, in thousands of orders.** On tokio's paused clock ([`MemoryStore`](tower_distributed_lock::MemoryStore) follows it) a
//! history of many seconds takes milliseconds, and one seed gives one history:
//!
//! ```
//! use std::time::Duration;
//! use tower_distributed_lock_testing::{Fault, FaultyStore, Faults};
//! use tower_distributed_lock::{Lease, LockClient, MemoryStore};
//!
//! /// Two processes count under one lock. What was confirmed must be in the count.
//! async fn history(seed: u64) {
//!     let store = FaultyStore::new(MemoryStore::new(), Faults::hostile(), seed);
//!     let count = std::cell::Cell::new(0);
//!     let work = async |locks: LockClient| {
//!         let lease = Lease::Renewed(Duration::from_millis(500));
//!         for _ in 0..5 {
//!             let Ok(guard) = locks.lock("count").lease(lease).await else { continue };
//!             let before = count.get();
//!             tokio::time::sleep(Duration::from_millis(20)).await; // your handler
//!             if guard.release().await.is_ok() {
//!                 count.set(before + 1); // committed only if it was confirmed: no other holder came between
//!             }
//!         }
//!     };
//!     // A clone is another process's way to the same store.
//!     tokio::join!(work(LockClient::new(store.clone())), work(LockClient::new(store.clone())));
//!     assert!(store.tally().calls() > 0);
//! }
//!
//! for seed in 0..20 {
//!     let runtime = tokio::runtime::Builder::new_current_thread()
//!         .enable_time()
//!         .start_paused(true)
//!         .build()
//!         .expect("a runtime");
//!     runtime.block_on(history(seed)); // print the seed when it fails
//! }
//! ```
//!
//! # Determinism
//!
//! One seed gives one sequence of faults per sequence of calls. To reproduce a whole history, use a single-threaded
//! runtime with paused time, no other source of randomness, and begin with `fastrand::seed(seed)`, which determines the
//! client's jitter on that thread.

mod call_plan;
#[allow(
    clippy::unwrap_used,
    reason = "a case says with `unwrap` what must hold"
)]
pub mod conformance;
mod faults;
mod faulty;
mod server;
mod tally;
mod wakeups;

pub use faults::{Fault, Faults};
pub use faulty::FaultyStore;
pub use tally::Tally;
/// The library that is tested.
pub use tower_distributed_lock;

/// The example in the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
