//! A Tower layer and axum extractors that put a distributed lock around a request.

pub mod error;
pub mod key;
pub mod lock;
pub mod store;

pub use error::{LockError, StoreError, StoreErrorKind};
pub use key::LockKey;
pub use lock::{FencingToken, Hold, HoldId, Lease, LockFamily, LockMode, Owner};
pub use store::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use store::redis::RedisStore;
pub use store::{LockStore, Wakeups};
