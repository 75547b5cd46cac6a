//! A [Tower](https://docs.rs/tower) layer and [axum](https://docs.rs/axum) extractors that put a distributed lock around a
//! request, on a lock client that speaks [Redisson](https://github.com/redisson/redisson)'s wire protocol.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::get};
//! use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
//! # async fn show() {}
//! # async fn replace() {}
//!
//! let locks = LockClient::new(MemoryStore::new()); // or RedisStore::connect("redis://127.0.0.1").await?
//! let app: Router = Router::new()
//!     .route("/documents/{id}", get(show).put(replace))
//!     .layer(DistributedLockLayer::new(locks)); // key: route and parameters; GET reads, PUT writes
//! # }
//! ```
//!
//! # Where to begin
//!
//! * [`DistributedLockLayer`] locks requests; its module says what a request goes through.
//! * [`LockClient`] locks without HTTP: [`lock`](LockClient::lock), [`lock_all`](LockClient::lock_all),
//!   [`lock_any`](LockClient::lock_any).
//! * [`MemoryStore`] and `RedisStore` are where locks live; [`LockStore`] is the contract for others.
//! * [`LockClient::audit`] says what is promised on a deployment, and what weakens it.
//! * [`LockAdmin`] shows who holds and who waits, and breaks locks.
//!
//! # One model
//!
//! A lock is a set of holds; a [`LockMode`] is a rule about which holds may coexist. A grant is one hold, under a name
//! that is never used twice; a [`LockGuard`] is a share in it. A hold lives for its [`Lease`], which is renewed for as
//! long as a guard lives. Whoever dies leaves nothing but a lease that runs out.
//!
//! # What is promised
//!
//! Two pieces of work whose release was *confirmed* ([`LockGuard::release`] answered `Ok`, or the layer let the response
//! go) never overlapped, whatever clocks, pauses, crashes and networks did. What a lost lock means for the rest is up to
//! you: [`LockGuard::lost`] signals it, the layer answers 500 instead of the handler's response, and a [`FencingToken`]
//! lets the resource itself refuse a stale holder.
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `axum` | yes | the `extract` module, and keys from the matched route |
//! | `redis` | yes | `RedisStore`: one server, or the master that sentinels name |
//! | `redis-tls` | | `rediss://` addresses, through rustls |
//! | `metrics` | | measures waits, holds and losses: see [`telemetry`] |
//! | `testing` | | the `testing` module: a store that misbehaves, for your tests |

pub mod admin;
pub mod audit;
mod backoff;
pub mod client;
pub mod error;
#[cfg(test)]
mod exploration;
#[cfg(feature = "axum")]
pub mod extract;
pub mod guard;
pub mod guide;
pub mod idempotency;
mod keeper;
pub mod key;
pub mod layer;
mod limits;
pub mod lock;
mod queue;
pub mod store;
mod sync;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod work;

pub use admin::{Holder, Inspect, Inspection, LockAdmin};
pub use audit::Audit;
pub use client::{LockClient, LockClientBuilder, LockRequest};
pub use error::{InvalidRequest, LockError, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use extract::Locked;
pub use guard::{Ended, LockGuard, LockHandle};
pub use idempotency::IdempotencyLayer;
pub use layer::{
    Confirm, Confirmation, DistributedLockLayer, OnCancel, OnLost, OnMissing, OnUnavailable,
    Rejection, RejectionKind, ReleaseOn, by_method,
};
pub use lock::{
    FencingToken, Hold, HoldId, Lease, LockFamily, LockKey, LockMode, Owner, Resource, ResourceKey,
};
pub use store::memory::MemoryStore;
pub use store::quorum::{InvalidQuorum, QuorumStore};
#[cfg(feature = "redis")]
pub use store::redis::{AclRules, MissingRights, RedisStore, RedisStoreBuilder, Replicas};
pub use store::{LockStore, LockStoreExt, Wakeups};
pub use work::Candidate;
/// The crates whose types are in the signatures of [`RedisStore`].
#[cfg(feature = "redis")]
pub use {deadpool_redis, redis};

/// The examples in the README compile.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
