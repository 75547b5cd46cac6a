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
//!     .layer(DistributedLockLayer::new(locks));
//! # }
//! ```
//!
//! # What a request goes through
//!
//! 1. [`mode`](DistributedLockLayer::mode) decides how it is locked, [`key`](DistributedLockLayer::key) what is locked.
//! 2. It waits for the grant, at most [`wait`](DistributedLockLayer::wait). Nothing is acquired before the response future
//!    is first polled, and dropping that future at any point releases.
//! 3. The service inside is made ready only then, so that a waiting request occupies none of its capacity, and called.
//! 4. The lock is released, and the release confirmed, before the head of the response goes out ([`ReleaseOn`],
//!    [`Confirm`]). A request that lost its lock never answers with the handler's response.
//!
//! Whatever goes wrong is a response, `application/problem+json` with a [`Rejection`] in its extensions, never an error of
//! the service:
//!
//! | cause | status |
//! |---|---|
//! | the wait is over | 423 `lock-contended`, with `Retry-After` |
//! | too many wait | 503 `lock-overloaded`, with `Retry-After` |
//! | the store cannot be asked | 503 `lock-unavailable`, with `Retry-After` |
//! | the lock was lost | 500 `lock-lost`, `"outcome": "unknown"` |
//! | no key, or not a proper one | 400 `key-missing`, `key-invalid` |
//!
//! # Inside one request
//!
//! The request has one [`Owner`](crate::Owner), in its extensions. A second layer, an extractor, or a
//! [`LockRequest`](crate::LockRequest) with this owner joins what the request holds already instead of waiting for itself.
//! The lock itself is seen through [`LockHandle`](crate::LockHandle), in the extensions too.
//!
//! # Where to put it
//!
//! Outer to inner: request id, trace, catch-panic, CORS, timeout, authentication and signature checks, rate and body
//! limits, **lock**, handler. Locking before authentication lets strangers hold locks. Keep `wait` below the timeout, or
//! the timeout answers first.
//!
//! On an axum `Router`, `layer` also locks requests that no route matches (404), `route_layer` does not, and both lock
//! those whose method no route takes (405). `MethodRouter::route_layer` and `Handler::layer` are only reached by requests
//! that a handler takes.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;

use crate::client::LockClient;
use crate::error::BoxError;
use crate::key::{DefaultKey, KeyExtractor};
use crate::lock::{Lease, LockMode};

mod admission;
mod body;
mod confirm;
mod future;
mod intake;
mod mode;
mod policy;
mod rejection;
mod respond;
mod service;
mod settings;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use intake::{Buffered, Intake, Streamed};
pub use mode::{ByMethod, ModePolicy, by_method};
pub use rejection::{Rejection, RejectionKind};
pub use service::DistributedLock;
pub use settings::{Confirm, OnCancel, OnLost, OnMissing, OnUnavailable, ReleaseOn};

pub(crate) use body::{local, poll_bytes};
pub(crate) use confirm::{Unconfirmed, confirm};
pub(crate) use future::{call, in_task, unless_lost};
pub(crate) use intake::read;
pub(crate) use rejection::Refusal;
pub(crate) use respond::{Responder, Witness};

use policy::Policy;

/// The shortest lease that can be held, which is [`LockRequest`](crate::LockRequest)'s limit too.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);

/// Longer than anything that is meant; short enough to be added to a clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Puts a distributed lock around each request.
///
/// By default the key is the matched axum route with its parameters, or the path ([`DefaultKey`]); GET, HEAD and QUERY
/// read, OPTIONS, TRACE and CONNECT are not locked, other methods write; a request waits 10 s at most, its lease is
/// renewed at 30 s, it holds for 5 min at most, and 1024 requests may wait for a key at a time.
///
/// # Panics
///
/// A setter panics on a value that makes no sense by itself, and [`Layer::layer`] (so `Router::layer`, too) on settings
/// that contradict each other or that the store cannot serve. The text says what to change.
#[must_use = "a layer does nothing until it is applied"]
#[derive(Clone)]
pub struct DistributedLockLayer<K = DefaultKey, I = Streamed> {
    client: LockClient,
    key: K,
    intake: I,
    policy: Policy,
}

impl DistributedLockLayer {
    /// Locks with `client`, with default settings.
    pub fn new(client: LockClient) -> Self {
        Self {
            client,
            key: DefaultKey::default(),
            intake: Streamed::default(),
            policy: Policy::default(),
        }
    }
}

impl<K, I> DistributedLockLayer<K, I> {
    /// What a request locks: an extractor of [`key`](crate::key), or a closure over `&Parts`.
    pub fn key<N: KeyExtractor>(self, key: N) -> DistributedLockLayer<N, I> {
        DistributedLockLayer {
            client: self.client,
            key,
            intake: self.intake,
            policy: self.policy,
        }
    }

    /// How it is locked: a [`LockMode`], [`by_method`] (the default), or a closure over `&Parts`.
    pub fn mode(mut self, mode: impl ModePolicy) -> Self {
        self.policy.mode = std::sync::Arc::new(mode);
        self
    }

    /// What GET, HEAD and QUERY take instead of what `mode` says; `None` lets them pass without a lock.
    pub fn safe_methods(mut self, mode: impl Into<Option<LockMode>>) -> Self {
        self.policy.safe = Some(mode.into());
        self
    }

    /// How long a request waits for its lock (default 10 s). Zero: one try.
    ///
    /// A client that hangs up is not always noticed while its request waits (HTTP/1 with an unread body), so the wait is
    /// always finite.
    ///
    /// # Panics
    ///
    /// If the wait is longer than a year.
    #[track_caller]
    pub fn wait(mut self, wait: Duration) -> Self {
        assert!(
            wait <= LONGEST,
            "the wait must be finite: choose a year at most"
        );
        self.policy.wait = wait;
        self
    }

    /// How long the lock outlives a process that dies, and whether it is renewed (default: renewed, 30 s).
    ///
    /// # Panics
    ///
    /// If the lease is shorter than 10 ms or longer than a year.
    #[track_caller]
    pub fn lease(mut self, lease: Lease) -> Self {
        assert!(
            (SHORTEST..=LONGEST).contains(&lease.duration()),
            "the lease cannot be held: choose from 10 ms to a year"
        );
        self.policy.lease = lease;
        self
    }

    /// How long a request may hold its lock (default 5 min), so that a handler that hangs does not hold it for ever;
    /// `None`: as long as it lives. After that the lock counts as lost.
    ///
    /// # Panics
    ///
    /// If the time is shorter than 10 ms or longer than a year.
    #[track_caller]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        let max_hold = max_hold.into();
        assert!(
            max_hold.is_none_or(|max_hold| (SHORTEST..=LONGEST).contains(&max_hold)),
            "the longest hold cannot be kept: choose from 10 ms to a year, or `None`"
        );
        self.policy.max_hold = max_hold;
        self
    }

    /// How many requests of this process may wait for the same key at a time (default 1024); one more is answered 503 at
    /// once. The one that asks the store for all of them does not count.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.policy.max_waiters = max_waiters;
        self
    }

    /// Asks for a fencing token with every exclusive lock: see [`FencingToken`](crate::FencingToken).
    pub fn fenced(mut self) -> Self {
        self.policy.fenced = true;
        self
    }

    /// What becomes of a request without a key.
    pub fn on_missing(mut self, on_missing: OnMissing) -> Self {
        self.policy.on_missing = on_missing;
        self
    }

    /// What becomes of a request when the store cannot be asked.
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> Self {
        self.policy.on_unavailable = on_unavailable;
        self
    }

    /// The same for requests that only read.
    pub fn on_unavailable_reads(mut self, on_unavailable: OnUnavailable) -> Self {
        self.policy.on_unavailable_reads = Some(on_unavailable);
        self
    }

    /// What becomes of a handler whose lock is lost.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.policy.on_lost = on_lost;
        self
    }

    /// What becomes of a handler whose client has gone.
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.policy.on_cancel = on_cancel;
        self
    }

    /// How sure a response is that its lock was held until the end.
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.policy.confirm = confirm;
        self
    }

    /// When the lock is released.
    pub fn release_on(mut self, release_on: ReleaseOn) -> Self {
        self.policy.release_on = release_on;
        self
    }

    /// The status of a request that waited in vain (default 423). Many HTTP clients retry 409 or 503 by themselves, and not
    /// 423.
    ///
    /// # Panics
    ///
    /// If it is no status of an error.
    #[track_caller]
    pub fn contended_status(mut self, status: impl TryInto<StatusCode>) -> Self {
        match status.try_into() {
            Ok(status) if status.is_client_error() || status.is_server_error() => {
                self.policy.contended_status = status;
            }
            _ => panic!("`contended_status` needs a status from 400 to 599"),
        }
        self
    }

    /// Answers requests that are not served with a response of your own. The [`Rejection`] goes into its extensions
    /// whatever you answer; responses to HEAD lose their body.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, Rejection};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// DistributedLockLayer::new(locks).rejection(|rejection, parts| {
    ///     let mut response = rejection.to_response();
    ///     *response.body_mut() = format!("{} {}: {rejection}", parts.method, parts.uri.path());
    ///     response
    /// })
    /// # ;
    /// ```
    pub fn rejection<F, B>(mut self, respond: F) -> Self
    where
        F: Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.policy.responder = Responder::new(respond);
        self
    }

    /// Reads the request's body, at most `limit` bytes, before the lock is asked for.
    ///
    /// Then a slow upload does not hold the lock, and a client that hangs up while its request waits is noticed at once. A
    /// longer body is answered 413. Trailers of the request are dropped. Keys may be taken from the body then: see
    /// [`key::json_field`](crate::key::json_field) and [`key::body`](crate::key::body).
    ///
    /// The body type of the requests must be one that can be made of [`Bytes`], as axum's can.
    ///
    /// # Panics
    ///
    /// If the limit is 0.
    #[track_caller]
    pub fn buffer_body(self, limit: usize) -> DistributedLockLayer<K, Buffered> {
        assert!(limit > 0, "`buffer_body` needs room for at least one byte");
        DistributedLockLayer {
            client: self.client,
            key: self.key,
            intake: Buffered::up_to(limit),
            policy: self.policy,
        }
    }
}

impl<S, K: Clone, I: Clone> Layer<S> for DistributedLockLayer<K, I> {
    type Service = DistributedLock<S, K, I>;

    fn layer(&self, inner: S) -> Self::Service {
        if let Err(reason) = self.policy.check(&self.client) {
            panic!("this `DistributedLockLayer` cannot serve requests: {reason}");
        }
        DistributedLock::new(inner, self.clone())
    }
}

impl<K, I> fmt::Debug for DistributedLockLayer<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLockLayer")
            .field("client", &self.client)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// In the extensions of a request that a layer let pass without a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unlocked;
