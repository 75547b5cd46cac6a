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
//!     .route_layer(DistributedLockLayer::new(locks)); // key: route and parameters; GET reads, PUT writes
//! # }
//! ```
//!
//! # Where to begin
//!
//! * [The guide] has a page for each task: [getting started] is the first.
//! * [`DistributedLockLayer`] locks requests; its module has the steps of a request.
//! * [`LockClient`] locks without HTTP: [`lock`](LockClient::lock), [`lock_all`](LockClient::lock_all),
//!   [`lock_any`](LockClient::lock_any).
//! * [`MemoryStore`] and `RedisStore` are the stores; [`LockStore`](store::LockStore) is the contract for other stores.
//! * [`LockClient::audit`] reports the promises of a deployment, and what weakens them.
//! * [`LockAdmin`] shows holders and waiters, and breaks locks.
//!
//! [The guide]: https://github.com/tower-distributed-lock/tower-distributed-lock/blob/main/README.md#where-to-find-the-rest
//! [getting started]: https://github.com/tower-distributed-lock/tower-distributed-lock/blob/main/docs/guide/getting_started.md
//!
//! # One model
//!
//! A lock is a set of holds; a [`LockMode`] is a rule about which holds may coexist. A grant is one hold, with an id that is
//! never used twice; a [`LockGuard`] is a share in it. A hold lives for its [`Lease`], which is renewed as long as a guard lives.
//! When a process dies, the leases of its holds expire.
//!
//! A locked resource has **one name and one family of modes** everywhere: a [`Resource`] declares both, for the layer, the client
//! and the admin.
//!
//! # What is promised
//!
//! Two pieces of work whose release the store has *confirmed* ([`LockGuard::release`] answered `Ok`, or the layer sent a response
//! with [`ConfirmedBy::Store`](layer::ConfirmedBy::Store)) never overlapped, whatever happened to clocks, processes and networks. A lock may be lost
//! nevertheless. Then [`LockGuard::lost`] signals it, the layer answers 500 instead of the handler's response, and a
//! [`FencingToken`] lets the resource itself refuse a stale holder.
//!
//! # Wrong settings
//!
//! Settings of the program's own text panic at its start: those of a layer in its setters, and the name space of a
//! [`LockClientBuilder`](client::LockClientBuilder). What may come from a configuration or a request returns an error: a [`LockRequest`] fails with
//! [`LockError::Invalid`] or [`LockError::Unsupported`]. Each text names the change.
//!
//! # Problems
//!
//! The layers answer requests that they do not serve with `application/problem+json` (RFC 9457). Its `type` leads here:
//!
//! | type | status | what the client may do |
//! |---|---|---|
//! | <a id="lock-contended"></a>`lock-contended` | 423 | repeat after `Retry-After`: another request holds the lock |
//! | <a id="no-permit"></a>`no-permit` | 429 | repeat after `Retry-After`: as many requests as may use the resource at a time are using it |
//! | <a id="lock-overloaded"></a>`lock-overloaded` | 503 | repeat after `Retry-After`: too many requests wait for the lock |
//! | <a id="lock-unavailable"></a>`lock-unavailable` | 503 | repeat after `Retry-After`: the lock store does not answer. Nothing was done |
//! | <a id="lock-lost"></a>`lock-lost` | 500 | find out what was done: the request has run, in whole or in part, and it is not confirmed that no other ran at the same time |
//! | <a id="lock-misconfigured"></a>`lock-misconfigured` | 500 | nothing: this is a bug or misconfiguration in the server |
//! | <a id="key-missing"></a>`key-missing`, <a id="key-invalid"></a>`key-invalid` | 400 | send what names the resource; `detail` says what is wrong |
//! | <a id="body-too-large"></a>`body-too-large` | 413 | send a shorter body |
//! | <a id="body-timeout"></a>`body-timeout` | 400 | send the body within a minute |
//! | <a id="body-unreadable"></a>`body-unreadable` | 400 | send the body to its end |
//! | <a id="body-budget"></a>`body-budget` | 503 | repeat after `Retry-After`: too many bodies wait for this lock |
//! | <a id="request-in-progress"></a>`request-in-progress` | 409 | repeat after `Retry-After`: the first request with this idempotency key still runs |
//! | <a id="key-reused"></a>`key-reused` | 422 | choose a new idempotency key: this one was used for another request |
//! | <a id="record-unreadable"></a>`record-unreadable` | 500 | nothing: the recorded answer cannot be read |
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `axum` | yes | the `extract` module, and keys from the matched route |
//! | `redis` | yes | `RedisStore`: one server, the master that sentinels name, or a Cluster |
//! | `redis-tls` | | `rediss://` addresses, through rustls |
//! | `tonic` | | `DistributedLockLayer::grpc`, and rejections as gRPC statuses |
//! | `metrics` | | measures waits, holds and losses: see [`telemetry`] |

// docs.rs shows the feature of each item.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
pub mod audit;
mod backoff;
pub mod client;
mod contend;
pub mod error;
#[cfg(test)]
mod exploration;
#[cfg(feature = "axum")]
pub mod extract;
pub mod guard;
#[cfg(all(doctest, feature = "axum", feature = "redis-tls"))]
mod guide;
mod hold;
pub mod idempotency;
mod keeper;
pub mod key;
pub mod layer;
mod limits;
pub mod lock;
mod release;
mod spawn;
pub mod store;
mod sync;
mod table;
pub mod telemetry;
pub mod work;

#[doc(inline)]
pub use admin::LockAdmin;
#[doc(inline)]
pub use client::{LockClient, LockRequest};
#[doc(inline)]
pub use error::LockError;
#[cfg(feature = "axum")]
#[doc(inline)]
pub use extract::Locked;
#[doc(inline)]
pub use guard::{LockGuard, LockHandle};
#[doc(inline)]
pub use idempotency::IdempotencyLayer;
#[doc(inline)]
pub use layer::{
    Confirm, DistributedLockLayer, OnCancel, OnLost, OnMissing, OnUnavailable, Rejection,
    RejectionKind, ReleaseOn,
};
#[doc(inline)]
pub use lock::{FencingToken, Lease, LockKey, LockMode, Owner, Resource};
#[doc(inline)]
pub use store::memory::MemoryStore;
#[cfg(feature = "redis")]
#[doc(inline)]
pub use store::redis::RedisStore;

/// The examples in the README compile.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
