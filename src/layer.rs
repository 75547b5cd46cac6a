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
//! 2. Its body is read, if it is `axum::body::Body` or [`buffer_body`](DistributedLockLayer::buffer_body) is set. So a slow
//!    sender holds no lock.
//! 3. It waits for the grant, at most [`wait`](DistributedLockLayer::wait). Nothing is acquired before the response future
//!    is first polled, and dropping that future at any point releases.
//! 4. Only then the inner service is made ready, so that a waiting request occupies none of its capacity, and is called.
//! 5. The lock is released, and the release confirmed, before the head of the response is sent ([`ReleaseOn`], [`Confirm`]). A
//!    request that lost its lock never answers with the handler's response.
//!
//! A request that fails is answered with `application/problem+json`, and with a [`Rejection`] in the response's extensions. It
//! is never an error of the service:
//!
//! | cause | status |
//! |---|---|
//! | the wait is over | 423 `lock-contended`, with `Retry-After` |
//! | all [permits](DistributedLockLayer::permits) are in use and the wait is over | 429 `no-permit`, with `Retry-After` |
//! | too many requests wait | 503 `lock-overloaded`, with `Retry-After` |
//! | the store does not answer, or refuses | 503 `lock-unavailable`, with `Retry-After` |
//! | the lock was lost, or its release is not confirmed | 500 `lock-lost`, `"outcome": "unknown"` |
//! | the request has no key, or a malformed one | 400 `key-missing`, `key-invalid` |
//! | the request's body is too long, too slow, broken, or one too many | 413 `body-too-large`, 408 `body-timeout`, 400 `body-unreadable`, 503 `body-budget` |
//! | the program is to be changed; the reason is logged at error | 500 `lock-misconfigured` |
//!
//! `Retry-After` is computed from the time for which the requests of the layer hold their locks, and from the lease of the
//! present holder. It is spread at random, so that clients that are refused together do not return together.
//!
//! # What confirms a response
//!
//! The response carries a [`Confirmation`] in its extensions. [`Confirmation::Store`]: the store carried the hold without a gap.
//! Two such responses never belong to requests that overlapped. [`Confirmation::Lease`]: the store was not asked or did not
//! answer, and by this process's clock the lease has not expired. By default only requests that read are answered with it;
//! [`confirm`](DistributedLockLayer::confirm) and [`confirm_reads`](DistributedLockLayer::confirm_reads) choose.
//!
//! # Inside one request
//!
//! The request has one [`Owner`](crate::Owner), in its extensions. A second layer, an extractor, or a
//! [`LockRequest`](crate::LockRequest) with this owner joins a hold of the request instead of waiting for itself. A `LockRequest`
//! of a handler without this owner, for a key that its layer holds, fails at once. The lock itself is visible through
//! [`LockHandle`](crate::LockHandle), also in the extensions.
//!
//! # Where to put it
//!
//! Outer to inner: request id, trace, catch-panic, CORS, timeout, authentication and signature checks, rate and body limits,
//! **lock**, handler. A lock before authentication can be held by any client. Keep `wait` below the timeout, otherwise the timeout
//! answers first.
//!
//! By default only `axum::body::Body` is read before the lock. In one `ServiceBuilder`, a layer that makes another type of the
//! request's body (a body limit, a body time-out, decompression) leaves it to the handler, and a slow sender then holds the lock; a
//! warning says so once. Give such layers a `.layer` call of their own, or put
//! `.map_request(|request: Request<_>| request.map(Body::new))` before this layer.
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
//! use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
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
//!     .layer(DistributedLockLayer::new(locks))
//!     .service(service_fn(handle));
//! # let request = Request::put("/documents/42").body(Incoming::default()).expect("a request");
//! # let answer = tower::ServiceExt::oneshot(service, request).await.expect("an answer");
//! # assert_eq!(answer.status(), 200);
//! # }
//! ```
//!
//! For tonic, it is a line of the `Server`. Each call is a `POST`, so choose the mode. A refusal becomes a gRPC status by
//! [`rejection`](DistributedLockLayer::rejection), as [`RejectionKind::grpc_code`] shows:
//!
//! ```text
//! Server::builder()
//!     .layer(DistributedLockLayer::new(locks).key(key::path()).mode(LockMode::Reentrant).rejection(status))
//!     .add_service(orders)
//! ```

use http::HeaderValue;

use crate::lock::FencingToken;

mod admission;
mod body;
mod body_mode;
mod body_reader;
mod closure;
mod confirm;
mod hold_times;
mod lock_layer;
mod locking;
mod mode;
mod overload_delay;
mod payload;
mod policy;
mod protocol;
mod rejection;
mod respond;
mod serve;
mod serve_settings;
mod server_timing;
mod settings;
mod unless_lost;

pub use body::ResponseBody;
pub use body_mode::{BodyMode, Buffered, DefaultBody, Streamed};
pub use confirm::Confirmation;
pub use lock_layer::{DistributedLock, DistributedLockLayer};
pub use locking::{Locking, ResponseFuture};
pub use mode::{ByMethod, ModePolicy, by_method};
pub use rejection::{Rejection, RejectionKind};
pub use settings::{Confirm, OnCancel, OnLost, OnMissing, OnUnavailable, ReleaseOn};

pub(crate) use body::{local, whole};
pub(crate) use closure::{Closure, OfRequest};
pub(crate) use confirm::{NotConfirmed, confirm};
pub(crate) use payload::extract;
#[cfg(feature = "axum")]
pub(crate) use respond::RejectionLog;
pub(crate) use respond::Responder;
pub(crate) use serve::{Claim, Handling, Protocol, Served, Unclaimed, confirmed};
pub(crate) use serve_settings::ServeSettings;
pub(crate) use unless_lost::unless_lost;

/// In the extensions of a request that a layer let pass without a lock. Beside a [`LockHandle`](crate::LockHandle), which is
/// that of another layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unlocked;

/// In decimal digits, for a header such as `If-Match` or `X-Fencing-Token` of a request to the protected resource.
impl From<FencingToken> for HeaderValue {
    fn from(token: FencingToken) -> Self {
        token.value().into()
    }
}
