//! A layer that runs each request once, and answers repeats with the first response.
//!
//! A lock serialises; it does not make a repeat harmless. A client or webhook sender that did not hear the answer sends the
//! same request again, under the same key, and must get the same answer without the work being done twice.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::Router;
//! use axum::routing::post;
//! use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore, key};
//! # async fn pay() {}
//! # async fn ordered() {}
//!
//! let locks = LockClient::new(MemoryStore::new());
//! let webhooks = IdempotencyLayer::new(locks.clone()).key(key::standard_webhooks()).required();
//! let app: Router = Router::new()
//!     .route("/payments", post(pay).route_layer(IdempotencyLayer::new(locks))) // `Idempotency-Key`
//!     .route("/webhooks/orders", post(ordered).route_layer(webhooks));
//! # }
//! ```
//!
//! # What a request goes through
//!
//! 1. Requests that only read (GET, HEAD, QUERY, OPTIONS, TRACE, CONNECT) pass. So do those without a
//!    [`key`](IdempotencyLayer::key), unless it is [`required`](IdempotencyLayer::required).
//! 2. The body is read, at most [`body_limit`](IdempotencyLayer::body_limit) bytes: together with method and path it is the
//!    fingerprint of the request.
//! 3. The lock of the key is taken. The key counts per method, route and [`tenant`](IdempotencyLayer::tenant).
//! 4. Only then the record is looked up. If there is one, it is the answer, with `Idempotent-Replayed: true`: status, every
//!    header line, body.
//! 5. Otherwise the service inside runs, and its response is recorded and the lock released **in one step**, which fails
//!    if the lock was lost meanwhile. Then the response goes out.
//!
//! At most one execution per key is confirmed. What is *not* promised is that the handler never begins
//! twice: a process that dies in the middle has left no record, and the repeat runs as soon as its lease is over. The lease
//! is short and renewed; the [`retention`](IdempotencyLayer::retention) of a record is long.
//!
//! | cause | status |
//! |---|---|
//! | the key is in flight elsewhere, and the wait over | 409 `request-in-progress`, with `Retry-After` |
//! | the key was used with another method, path or body | 422 `key-reused` |
//! | no key where one is required, or not a proper one | 400 `key-missing`, `key-invalid` |
//! | the request's body is too long | 413 `body-too-large` |
//! | the lock was lost | 500 `lock-lost`, `"outcome": "unknown"`; nothing is recorded |
//! | the record is not one of this layer | 500 `record-unreadable` |
//! | the store cannot be asked, too many wait | 503, with `Retry-After` |
//!
//! # What is recorded
//!
//! Final answers: 2xx, 3xx and 4xx, but not 408, 409, 423, 425 and 429, which invite a repeat, and not 5xx
//! ([`store_if`](IdempotencyLayer::store_if)). Never the answers of this crate's layers further in. A panic, a lost lock
//! and a cancelled request record nothing.
//!
//! A response whose length is unknown when its head is there (a stream), one longer than
//! [`response_limit`](IdempotencyLayer::response_limit), and one with trailers go out unrecorded, with a warning in the
//! log: a repeat runs again. So put compression outside of this layer. Hop-by-hop headers and `Date` are not recorded.
//!
//! # Where to put it
//!
//! Inside authentication and signature checks: a record answers whoever knows the key. Outside of
//! [`DistributedLockLayer`](crate::DistributedLockLayer), whose 423 is then not recorded. A store that keeps no records is
//! refused when the layer is built.
//!
//! On an axum route, the layer that is added last is the outermost:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! # use axum::{Router, routing::post};
//! # use tower_distributed_lock::{DistributedLockLayer, IdempotencyLayer, LockClient, MemoryStore, key};
//! # async fn pay() {}
//! # let locks = LockClient::new(MemoryStore::new());
//! let lock = DistributedLockLayer::new(locks.clone()).key(key::param("order", "id"));
//! let once = IdempotencyLayer::new(locks);
//! let app: Router =
//!     Router::new().route("/orders/{id}/payments", post(pay).route_layer(lock).route_layer(once));
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, response};
use http_body::Body;
use tower_layer::Layer;

use crate::client::LockClient;
use crate::error::BoxError;
use crate::key::{IdempotencyKey, KeyExtractor};
use crate::layer::{Confirm, OnCancel, Rejection, Responder};
use crate::lock::Lease;

mod admission;
mod collect;
mod fingerprint;
mod future;
mod policy;
mod record;
mod scope;
mod service;

pub use future::ResponseFuture;
pub use service::Idempotency;

use policy::Policy;

/// Runs each request once per idempotency key. See the [module](self).
///
/// By default the key is the header `Idempotency-Key`, which may be absent; a repeat waits 3 s for the first request; the
/// lease is renewed at 30 s, for 5 min at most; a record is kept for a day; request bodies may have 2 MiB and recorded
/// responses 1 MiB.
///
/// # Panics
///
/// [`Layer::layer`] (so `Router::layer`, too) panics when the store keeps no records, and on settings that make no sense or
/// contradict each other. The text says what to change.
#[must_use = "a layer does nothing until it is applied"]
#[derive(Clone)]
pub struct IdempotencyLayer<K = IdempotencyKey> {
    client: LockClient,
    key: K,
    policy: Policy,
}

impl IdempotencyLayer {
    /// Locks and records with `client`, with default settings.
    pub fn new(client: LockClient) -> Self {
        Self {
            client,
            key: IdempotencyKey::default(),
            policy: Policy::default(),
        }
    }
}

impl<K> IdempotencyLayer<K> {
    /// Where a request says which request it is: an extractor of [`key`](crate::key), or a closure over `&Parts`. Several
    /// keys are one together.
    pub fn key<N: KeyExtractor>(self, key: N) -> IdempotencyLayer<N> {
        IdempotencyLayer {
            client: self.client,
            key,
            policy: self.policy,
        }
    }

    /// Answers requests without a key 400 `key-missing`, instead of letting them pass unprotected.
    pub fn required(mut self) -> Self {
        self.policy.required = true;
        self
    }

    /// Whose key it is: two tenants may use the same one. Take it from the server's own state, such as an extension that
    /// the authentication has set, never from a header that the client controls: a record answers whoever names its key.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// #[derive(Clone)]
    /// struct Tenant(String);
    ///
    /// # let locks = LockClient::new(MemoryStore::new());
    /// IdempotencyLayer::new(locks)
    ///     .tenant(|parts: &Parts| parts.extensions.get::<Tenant>().map(|tenant| tenant.0.clone()))
    /// # ;
    /// ```
    pub fn tenant<F>(mut self, tenant: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.policy.tenant = Arc::new(tenant);
        self
    }

    /// How long a repeat waits for the first request (default 3 s) before it is answered 409. Zero: one try. Senders of
    /// webhooks give up after 5 to 10 s, so stay below.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.policy.wait = wait;
        self
    }

    /// How soon a repeat may run when the process that ran the first request has died, and whether the claim is renewed
    /// (default: renewed, 30 s).
    pub fn lease(mut self, lease: Lease) -> Self {
        self.policy.lease = lease;
        self
    }

    /// How long a handler may run (default 5 min); after that its claim counts as lost. `None`: as long as it lives.
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.policy.max_hold = max_hold.into();
        self
    }

    /// How many repeats of one request may wait in this process at a time (default 64); one more is answered 503.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.policy.max_waiters = max_waiters;
        self
    }

    /// How long a response is remembered (default 24 h). Longer than senders repeat.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.policy.retention = retention;
        self
    }

    /// Which responses are final, and so recorded, by their heads. The default is said [above](self#what-is-recorded).
    pub fn store_if<F>(mut self, is_final: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.policy.store_if = Arc::new(is_final);
        self
    }

    /// How long (bytes) the body of a request with a key may be (default 2 MiB); a longer one is answered 413.
    pub fn body_limit(mut self, limit: usize) -> Self {
        self.policy.body_limit = limit;
        self
    }

    /// How long (bytes) the body of a response may be to be recorded (default 1 MiB). A longer one goes out unrecorded,
    /// with a warning in the log.
    pub fn response_limit(mut self, limit: usize) -> Self {
        self.policy.response_limit = limit;
        self
    }

    /// What becomes of a handler whose client has gone. With [`OnCancel::RunToCompletion`] it runs to its end and is
    /// recorded, so that the repeat finds the answer.
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.policy.on_cancel = on_cancel;
        self
    }

    /// How sure a response is that it was recorded and its lock held until then. [`Confirm::Deadline`] is refused: it asks
    /// nobody.
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.policy.confirm = confirm;
        self
    }

    /// Answers requests that are not served with a response of your own, as
    /// [`DistributedLockLayer::rejection`](crate::DistributedLockLayer::rejection) does.
    pub fn rejection<F, B>(mut self, respond: F) -> Self
    where
        F: Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.policy.responder = Responder::new(respond);
        self
    }
}

impl<S, K: Clone> Layer<S> for IdempotencyLayer<K> {
    type Service = Idempotency<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        if let Err(reason) = self.policy.check(&self.client) {
            panic!("this `IdempotencyLayer` cannot serve requests: {reason}");
        }
        Idempotency::new(inner, self.clone())
    }
}

impl<K> fmt::Debug for IdempotencyLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("client", &self.client)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
