//! A Tower layer and axum extractors that put a distributed lock around a request.

pub mod admin;
pub mod client;
pub mod error;
#[cfg(feature = "axum")]
pub mod extract;
pub mod guard;
pub mod idempotency;
mod keeper;
pub mod layer;
mod local;
pub mod lock;
// `key.rs` knows nothing of requests; the public module below puts it together with what does.
#[path = "key.rs"]
mod name;
pub mod store;

/// Names of what is protected, and the places of a request where a layer finds them.
pub mod key {
    pub use crate::idempotency::key::*;
    pub use crate::layer::key::*;
    pub use crate::name::LockKey;
}

pub use admin::{Holder, Inspect, Inspection, LockAdmin};
pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{LockError, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use extract::Locked;
pub use guard::{LockGuard, LockHandle};
pub use idempotency::IdempotencyLayer;
pub use layer::{
    Confirm, DistributedLockLayer, OnCancel, OnLost, OnMissing, OnUnavailable, Rejection,
    RejectionKind, ReleaseOn, by_method,
};
pub use lock::{FencingToken, Hold, HoldId, Lease, LockFamily, LockMode, Owner};
pub use name::LockKey;
pub use store::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use store::redis::{RedisStore, RedisStoreBuilder};
pub use store::{LockStore, Wakeups};
