//! A Tower layer and axum extractors that put a distributed lock around a request.

pub mod admin;
pub mod client;
pub mod error;
pub mod guard;
mod keeper;
pub mod key;
mod local;
pub mod lock;
pub mod store;

pub use admin::{Holder, Inspect, Inspection, LockAdmin};
pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{LockError, StoreError, StoreErrorKind};
pub use guard::{LockGuard, LockHandle};
pub use key::LockKey;
pub use lock::{FencingToken, Hold, HoldId, Lease, LockFamily, LockMode, Owner};
pub use store::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use store::redis::{RedisStore, RedisStoreBuilder};
pub use store::{LockStore, Wakeups};
