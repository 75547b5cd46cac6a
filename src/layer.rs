//! A layer that serves each request under its lock.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::Router;
//! use axum::routing::get;
//! use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
//! # async fn show() {}
//! # async fn replace() {}
//!
//! let locks = LockClient::new(MemoryStore::new());
//! let app: Router = Router::new()
//!     .route("/documents/{id}", get(show).put(replace))
//!     .route_layer(DistributedLockLayer::new(locks)) // these routes
//!     .route("/healthz", get(async || "fine")); // and not this one
//! # }
//! ```
//!
//! # What a request goes through
//!
//! 1. [`mode`](DistributedLockLayer::mode) decides the mode, [`key`](DistributedLockLayer::key) the key of the lock.
//! 2. If it would be refused anyway, because the queue of its key is full or the client was shut down, it is refused now. After the
//!    store has failed, one request at a time asks it now, as a part of its wait, and is refused if it gets no answer.
//! 3. Its body is read, unless [`stream_body`](DistributedLockLayer::stream_body) leaves it to the handler, so that a slow sender
//!    holds no lock. A key that is [in the body](crate::key::body) is known only then, so the queue and the store are asked after that.
//! 4. It waits for the grant, at most [`wait`](DistributedLockLayer::wait). Nothing is acquired before the response future
//!    is first polled, and dropping that future at any point releases.
//! 5. Only then the inner service is made ready, so that a waiting request occupies none of its capacity, and is called.
//! 6. The lock is released, and the release confirmed, before the head of the response is sent ([`ReleaseOn`], [`Confirm`]). A
//!    request that lost its lock never answers with the handler's response.
//!
//! A request that fails is answered with `application/problem+json`, and with a [`Rejection`] in the response's extensions. It
//! is never an error of the service:
//!
//! | cause | status |
//! |---|---|
//! | the wait is over | 423 `lock-contended`, with `Retry-After` |
//! | all [permits](crate::LockMode::permits) are in use and the wait is over | 429 `no-permit`, with `Retry-After` |
//! | too many requests wait | 503 `lock-overloaded`, with `Retry-After` |
//! | the store does not answer, or refuses | 503 `lock-unavailable`, with `Retry-After` |
//! | the lock was lost, or its release is not confirmed | 500 `lock-lost`, `"outcome": "unknown"` |
//! | the request has no key, or a malformed one | 400 `key-missing`, `key-invalid` |
//! | the request's body is too long, too slow, broken, or one too many | 413 `body-too-large`, 400 `body-timeout`, 400 `body-unreadable`, 503 `body-budget` |
//! | the program is to be changed; the reason is logged at error | 500 `lock-misconfigured` |
//!
//! `Retry-After` is computed from the time for which the requests of the route hold their locks, and from the lease of the
//! present holder; without a measurement it is a second or two. It is spread at random, so that clients that are refused together do
//! not return together.
//!
//! # What confirms a response
//!
//! The [`LockTiming`] in the extensions of a response says what it was [`ConfirmedBy`]. [`ConfirmedBy::Store`]: the store kept the hold
//! without a gap. Two such responses never belong to requests that overlapped. [`ConfirmedBy::Lease`]: the store was not asked or did
//! not answer, and by this process's clock the lease has not expired. By default only requests that read are answered with it;
//! [`confirm`](DistributedLockLayer::confirm) and [`reads`](DistributedLockLayer::reads) choose.
//!
//! # Inside one request
//!
//! The request has one [`Owner`](crate::Owner). A second layer, an extractor, or a [`LockRequest`](crate::LockRequest) with this owner
//! joins a hold of the request instead of waiting for itself. A `LockRequest` of a handler without this owner, for a key that its layer
//! holds, fails at once. Handlers extract the `Owner` and the [`LockHandle`](crate::LockHandle) of the lock; without axum,
//! [`Owner::of`](crate::Owner::of) and [`LockHandle::of`](crate::LockHandle::of) find them in the request's extensions.
//!
//! # Where to put it
//!
//! Outer to inner: request id, trace, catch-panic, CORS, timeout, authentication and signature checks, rate and body limits,
//! **lock**, handler. A lock before authentication can be held by any client. Keep `wait` below the timeout, otherwise the timeout
//! answers first. The layer reads bodies up to axum's `DefaultBodyLimit`, and never more than 64 MiB. It does not see a limit that is
//! further in, such as that of a handler.
//!
//! The layer must be able to make a request's body of the bytes that it has read, as `axum::body::Body` can be made. In one
//! `ServiceBuilder`, a layer that makes another type of the body (a body limit, a body time-out, decompression) therefore does not
//! compile around it. Give such layers a `.layer` call of their own, put
//! `.map_request(|request: Request<_>| request.map(Body::new))` before this layer, or call
//! [`stream_body`](DistributedLockLayer::stream_body).
//!
//! On an axum `Router`, use `route_layer`, after the routes that are locked. `layer` also locks requests that no route matches
//! (404), and `/healthz` next to the routes that need a lock; both then depend on the store. Both lock requests with a method
//! that no route accepts (405). `MethodRouter::route_layer` and `Handler::layer` are only reached by requests that have a
//! handler.
//!
//! # Without axum
//!
//! The layer is a line of any `tower::ServiceBuilder`. The key is the path then, unless [`key`](DistributedLockLayer::key) says
//! otherwise. For hyper, `hyper_util::service::TowerToHyperService::new(service)` makes a service of the result:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tower::{ServiceBuilder, service_fn};
//! use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, key};
//!
//! # type Incoming = http_body_util::Full<bytes::Bytes>; // with hyper: `hyper::body::Incoming`
//! async fn handle(_request: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new("saved".to_owned()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let locks = LockClient::new(MemoryStore::new());
//! let service = ServiceBuilder::new()
//!     .layer(DistributedLockLayer::new(locks).key(key::path()).stream_body())
//!     .service(service_fn(handle));
//! # let request = Request::put("/documents/42").body(Incoming::default()).expect("a request");
//! # let answer = tower::ServiceExt::oneshot(service, request).await.expect("an answer");
//! # assert_eq!(answer.status(), 200);
//! # }
//! ```
//!
//! For tonic, with the feature `tonic`, `Server::builder().layer(DistributedLockLayer::grpc(locks))` answers refusals with gRPC
//! statuses.

use http::HeaderValue;

use crate::lock::FencingToken;

mod admission;
mod body;
mod body_budget;
mod body_reader;
mod confirm;
#[cfg(feature = "tonic")]
mod grpc;
mod hold_times;
mod lock_layer;
pub mod mode;
mod policy;
mod protocol;
mod rejection;
mod request_lock;
mod respond;
mod serve;
mod serve_settings;
mod service;
mod setters;
mod settings;
mod take_body;
mod timing;
mod unless_lost;
mod wait;

pub use body::ResponseBody;
pub use confirm::ConfirmedBy;
pub use lock_layer::{DistributedLock, DistributedLockLayer};
pub use mode::ModePolicy;
pub use rejection::{Rejection, RejectionKind};
pub use service::ResponseFuture;
pub use settings::{Confirm, OnCancel, OnLost, OnMissing, OnUnavailable, ReadPolicy, ReleaseOn};
pub use take_body::TakesBody;
pub use timing::LockTiming;
pub use wait::WaitPolicy;

pub(crate) use admission::granted;
pub(crate) use body::{local, whole};
pub(crate) use confirm::{confirm, in_time};
pub(crate) use request_lock::RequestLock;
#[cfg(feature = "axum")]
pub(crate) use respond::RejectionLog;
pub(crate) use respond::{Head, Responder};
pub(crate) use serve::{Claim, FinalResponse, NotAdmitted, Protocol, serve, under};
#[cfg(feature = "axum")]
pub(crate) use serve_settings::{MAX_HOLD, WAIT};
pub(crate) use serve_settings::{ServeSettings, TenantOf};
pub(crate) use service::service;
pub(crate) use setters::{shared_setters, tenant_from};
pub(crate) use take_body::{WholeBody, extract};
pub(crate) use unless_lost::unless_lost;

/// In decimal digits, for a header such as `If-Match` or `X-Fencing-Token` of a request to the protected resource.
impl From<FencingToken> for HeaderValue {
    fn from(token: FencingToken) -> Self {
        token.value().into()
    }
}
