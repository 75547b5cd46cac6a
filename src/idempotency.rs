//! A layer that runs each request once, and answers repeats with the first response.
//!
//! A lock serialises requests, but does not make repeats harmless. A client or webhook sender that did not get the answer sends
//! the same request again, with the same key. It must get the same answer, and the work must not run twice.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::Router;
//! use axum::routing::post;
//! use http::request::Parts;
//! use tower_distributed_lock::idempotency::key;
//! use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
//! # async fn pay() {}
//! # async fn ordered() {}
//!
//! /// Set by the authentication, which is outside of the layer.
//! #[derive(Clone)]
//! struct User(String);
//!
//! let locks = LockClient::new(MemoryStore::new());
//! let payments = IdempotencyLayer::new(locks.clone()) // the header `Idempotency-Key`
//!     .tenant(|parts: &Parts| Some(parts.extensions.get::<User>()?.0.clone()));
//! let webhooks = IdempotencyLayer::new(locks)
//!     .key(key::standard_webhooks())
//!     .required()
//!     .shared(); // the sender signs, and has no session
//! let app: Router = Router::new()
//!     .route("/payments", post(pay).route_layer(payments))
//!     .route("/webhooks/orders", post(ordered).route_layer(webhooks));
//! # }
//! ```
//!
//! # What a request goes through
//!
//! 1. Requests that do not write (GET, HEAD, QUERY, OPTIONS, TRACE, CONNECT) pass. So do those without a
//!    [`key`](IdempotencyLayer::key), unless it is [`required`](IdempotencyLayer::required). Their bodies are not read.
//! 2. The body is read, at most [`body_limit`](IdempotencyLayer::body_limit) bytes. With method, path, query and content
//!    type it is the [`fingerprint`](IdempotencyLayer::fingerprint) of the request.
//! 3. The layer reads the record of the key. The key counts per method, route and [`tenant`](IdempotencyLayer::tenant). If there
//!    is a record, it is the answer, with `Idempotent-Replayed: true`: status, header lines, body. A record does not change, so a
//!    replay needs no lock.
//! 4. Otherwise the layer takes the lock of the key, and reads the record again.
//! 5. If there is still none, the inner service runs. Its response is recorded and the lock released **in one step**, which fails
//!    if the lock was lost meanwhile. The response is sent when the store has confirmed that step.
//!
//! # What is promised
//!
//! For the whole [`retention`](IdempotencyLayer::retention), at most one execution per key is answered with a response that is
//! [recorded](self#what-is-recorded). There is no promise about responses that are not recorded. The handler may begin twice: a
//! process that dies during the work leaves no record, and the repeat runs when its lease is over.
//!
//! The promise costs one round trip to the store after the handler, and a 500 when the store does not confirm the record within a
//! second ([`Confirm::Strict`], the default here). That 500 has `"outcome": "unknown"`: the record may have been stored
//! nevertheless, and the repeat gets it. [`Confirm::Store`] sends the response in that case, without the promise: the record may
//! never be stored, and a repeat may also run and be answered.
//!
//! | cause | status |
//! |---|---|
//! | a request with this key is under way elsewhere, and the wait is over | 409 `request-in-progress`, with `Retry-After` |
//! | the key was used for another request, by the fingerprint | 422 `key-reused` |
//! | no key where one is required, or a malformed one | 400 `key-missing`, `key-invalid` |
//! | the request's body is too long, or too slow | 413 `body-too-large`, 408 `body-timeout` |
//! | the lock was lost, or the store did not confirm the record | 500 `lock-lost`, `"outcome": "unknown"` |
//! | the record is not one of this layer | 500 `record-unreadable` |
//! | the store cannot be asked, too many requests wait, their bodies have no room | 503, with `Retry-After` |
//!
//! # What is recorded
//!
//! Final answers: 2xx, 3xx and 4xx, except 400, 413, 415 and 422, which a corrected request with the same key does not get, and
//! except 408, 409, 423, 425 and 429, which invite a repeat ([`record_if`](IdempotencyLayer::record_if) decides otherwise). The
//! answers of this crate's layers further in are never recorded, and neither is an upgrade (101): the record of a response has
//! no connection, and a repeat runs again. A panic, a lost lock, and a request that is cancelled while its
//! handler runs record nothing.
//!
//! These responses are sent unrecorded, and a repeat runs again: one of unknown length (a stream), one longer than
//! [`response_limit`](IdempotencyLayer::response_limit), one with trailers, and one whose body does not have its declared length.
//! The log has a warning, at most one a minute. Compression belongs outside of this layer, because it makes streams.
//!
//! Hop-by-hop headers and `Date` are not recorded, and `Set-Cookie` only with
//! [`record_cookies`](IdempotencyLayer::record_cookies).
//!
//! # What records cost
//!
//! A record is the response and about 100 bytes. It stays in the store for its retention. So a client that may choose new keys
//! can store [`response_limit`](IdempotencyLayer::response_limit) and the header lines of a response for each of its requests in a
//! [`retention`](IdempotencyLayer::retention): limit its rate, or choose smaller values. A [`MemoryStore`](crate::MemoryStore) drops the oldest records beyond its limit.
//! Records may have a server of their own: with a separate [`LockClient`] for this layer, a server that is full of records
//! refuses no other lock.
//!
//! # Where to put it
//!
//! Inside authentication and signature checks: a record answers every request with its key. Outside of
//! [`DistributedLockLayer`](crate::DistributedLockLayer), whose 423 is then not recorded. A store without records is refused when
//! the layer is built.
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
//! let once = IdempotencyLayer::new(locks).shared();
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
use crate::key::{AnyKey, KeyExtractor};
use crate::layer::{Closure, Confirm, Locking, OnCancel, Rejection, Responder};
use crate::lock::Lease;

mod admission;
mod identity;
pub mod key;
mod protocol;
mod record;
mod recording;
mod settings;

pub use crate::layer::ResponseFuture;

use identity::{Fingerprint, Scope};
use key::idempotency_key;
use settings::IdempotencySettings;

/// Runs each request once per idempotency key. See the [module](self).
///
/// The scope of the keys has no default: call [`tenant`](Self::tenant) or [`shared`](Self::shared).
///
/// By default the key is the header `Idempotency-Key`, which may be absent; a repeat waits 3 s for the first request; the
/// lease is renewed at 30 s, for 5 min at most; a record is kept for a day; request bodies may have 2 MiB and recorded
/// responses 64 KiB; a response is sent when its record is stored ([`Confirm::Strict`]).
///
/// # Panics
///
/// [`Layer::layer`] (so `Router::layer`, too) panics if the scope of the keys is missing, if the store keeps no records, and on
/// invalid or contradictory settings. The text names the change. With `MethodRouter::route_layer`, axum does that when the router
/// gets its state: end a router with `.with_state(())`. Setters do not panic. A duration that is longer than ten years is taken as
/// ten years.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// # use axum::{Router, routing::post};
/// # async fn pay() {}
/// # #[derive(Clone)] struct User(String);
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use std::time::Duration;
/// use tower_distributed_lock::IdempotencyLayer;
///
/// let once = IdempotencyLayer::new(locks)
///     .tenant(|parts| parts.extensions.get::<User>().map(|user| user.0.clone())) // two users' keys never meet
///     .required() // 400 without `Idempotency-Key`
///     .retention(Duration::from_secs(7 * 24 * 60 * 60));
/// let app: Router = Router::new().route("/payments", post(pay).route_layer(once));
/// # }
/// ```
#[must_use = "a layer does nothing until it is applied"]
#[derive(Clone)]
pub struct IdempotencyLayer {
    key: AnyKey,
    settings: IdempotencySettings,
}

impl IdempotencyLayer {
    /// A layer that uses `client`, with default settings. Also call [`tenant`](Self::tenant) or [`shared`](Self::shared).
    pub fn new(client: LockClient) -> Self {
        Self {
            key: AnyKey::new(idempotency_key()),
            settings: IdempotencySettings::new(client),
        }
    }

    /// Sets the extractor of the idempotency key: one of [`key`](crate::key), or a closure over `&Parts`. Several keys together
    /// form one.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = AnyKey::new(key);
        self
    }

    /// Answers requests without a key 400 `key-missing`, instead of letting them pass unprotected.
    pub fn required(mut self) -> Self {
        self.settings.required = true;
        self
    }

    /// Serves each tenant's keys apart: two tenants may use the same key.
    ///
    /// The tenant is the account or the user, which must not see the responses of another one. Take it from the server's own
    /// state, such as an extension that the authentication has set, never from a header that the client controls. Requests for
    /// which the closure returns `None` share their keys, so place the layer inside of the authentication.
    /// The request's body ([`key::body`](crate::key::body)) is not there.
    ///
    /// It is not derived from `Authorization` or `Cookie`: these change between a request and its repeat, which would then
    /// run again.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// # let locks = LockClient::new(MemoryStore::new());
    /// IdempotencyLayer::new(locks)
    ///     .tenant(|parts: &Parts| parts.extensions.get::<User>().map(|user| user.0.clone()))
    /// # ;
    /// ```
    pub fn tenant<F>(mut self, tenant: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.scope = Scope::PerTenant(Closure(Arc::new(tenant)));
        self
    }

    /// Serves the keys of all clients as one.
    ///
    /// **A client that sends the key and the request of another client gets that client's response**, and its own request does
    /// not run. Use it for webhooks, whose sender signs them and has no session, and for services with one client.
    pub fn shared(mut self) -> Self {
        self.settings.scope = Scope::Shared;
        self
    }

    /// Looks only at requests for which `predicate` is true; others pass unprotected (default: all requests that write).
    pub fn when<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.settings.serve.when = Some(Closure(Arc::new(predicate)));
        self
    }

    /// Sets the function by which two requests with one key are compared, instead of method, path, query, content type and body.
    /// A request with another fingerprint is answered 422.
    ///
    /// The closure returns all bytes that count; the layer records their digest. Leave out parts that the sender may change in a
    /// repeat, and no part that the handler reads.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// IdempotencyLayer::new(locks)
    ///     .shared()
    ///     .fingerprint(|parts: &Parts, body: &[u8]| [parts.uri.path().as_bytes(), b" ", body].concat())
    /// # ;
    /// ```
    pub fn fingerprint<F, T>(mut self, fingerprint: F) -> Self
    where
        F: Fn(&Parts, &[u8]) -> T + Send + Sync + 'static,
        T: AsRef<[u8]>,
    {
        self.settings.fingerprint = Closure(Arc::new(move |parts: &Parts, body: &[u8]| {
            Fingerprint::of_bytes(fingerprint(parts, body).as_ref())
        }));
        self
    }

    /// Sets how long a repeat waits for the first request (default 3 s) before it is answered 409. Zero: one attempt. Senders of
    /// webhooks time out after 5 to 10 s, so choose less. The reads of the record count: those of a slow store, and the attempt, may
    /// take two seconds together if this is shorter. What the store answers in the last tenth of a second is waited for.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.serve.wait = wait;
        self
    }

    /// Sets how soon a repeat may run after the process of the first request has died, and whether the lock is renewed (default:
    /// renewed, 30 s; at least 10 ms).
    pub fn lease(mut self, lease: Lease) -> Self {
        self.settings.serve.lease = lease;
        self
    }

    /// Sets how long a handler may run (default 5 min; at least 10 ms); after that its lock counts as lost. `None`: without
    /// limit.
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.settings.serve.max_hold = max_hold.into();
        self
    }

    /// Sets how many repeats of one request may wait in this process at a time (default 64); one more is answered 503: see
    /// [`overload_delay`](Self::overload_delay).
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.settings.serve.max_waiters = max_waiters;
        self
    }

    /// Sets how long the answer to a request that is refused for overload is delayed at most (default 1 s; zero: not at all), as
    /// [`DistributedLockLayer::overload_delay`](crate::DistributedLockLayer::overload_delay) does.
    pub fn overload_delay(mut self, longest: Duration) -> Self {
        self.settings.serve.overload_delay.longest = longest;
        self
    }

    /// Sets how long a record is kept (default 24 h): choose more than the time for which senders repeat. For the size of records
    /// see [above](self#what-records-cost).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets which responses are final, and so recorded, by their heads. For the default see [above](self#what-is-recorded). The
    /// answers of this crate's layers, and upgrades (101), are never recorded.
    pub fn record_if<F>(mut self, is_final: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.settings.record_if = Closure(Arc::new(is_final));
        self
    }

    /// Sets how long (bytes) the body of a request with a key may be (default 2 MiB); a longer one is answered 413, as by
    /// [`buffer_body`](crate::DistributedLockLayer::buffer_body).
    pub fn body_limit(mut self, limit: usize) -> Self {
        self.settings.serve.body_reader.limit = limit;
        self
    }

    /// Sets how long the body of a request with a key may take to arrive (default 60 s). A slower one is answered 408.
    pub fn body_time_limit(mut self, limit: Duration) -> Self {
        self.settings.serve.body_reader.time_limit = limit;
        self
    }

    /// Sets how much memory (bytes) the bodies of requests may occupy together, until their handlers drop them (default 64 MiB).
    /// A request without room for its body is answered 503. Clones of the layer share the budget.
    pub fn body_budget(mut self, bytes: usize) -> Self {
        self.settings.serve.body_reader.budget(bytes);
        self
    }

    /// Also records `Set-Cookie`, so that every repeat sets the cookies of the first response. Use it only if every client that
    /// knows a key may have its session: see [`tenant`](Self::tenant).
    pub fn record_cookies(mut self) -> Self {
        self.settings.record_cookies = true;
        self
    }

    /// Sets how long (bytes) the body of a recorded response may be (default 64 KiB). A longer one is sent unrecorded, with a
    /// warning in the log. For the size of records see [above](self#what-records-cost).
    pub fn response_limit(mut self, limit: usize) -> Self {
        self.settings.response_limit = limit;
        self
    }

    /// Sets how to treat a handler whose client has disconnected. With [`OnCancel::RunToCompletion`] it runs to its end and is
    /// recorded, so that the repeat gets the answer.
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.settings.serve.on_cancel = on_cancel;
        self
    }

    /// Sets the condition for sending a response: by default ([`Confirm::Strict`]) the store's confirmation that it is recorded,
    /// and that the lock was held until then. [`Confirm::Store`] also sends it when the store does not answer for a second; then
    /// more than one execution may be answered: see [above](self#what-is-promised). [`Confirm::Deadline`] is refused: it does not
    /// ask the store.
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.settings.confirm = confirm;
        self
    }

    /// Sets your own response to requests that are not served, as
    /// [`DistributedLockLayer::rejection`](crate::DistributedLockLayer::rejection) does.
    pub fn rejection<F, B>(mut self, respond: F) -> Self
    where
        F: Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.settings.serve.responder = Responder::new(respond);
        self
    }
}

/// Runs each request once per idempotency key. See [`IdempotencyLayer`].
pub type Idempotency<S> = Locking<S, IdempotencyLayer>;

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Self::Service {
        if let Err(reason) = self.settings.check() {
            panic!("this `IdempotencyLayer` cannot serve requests: {reason}");
        }
        Locking::new(inner, self.clone())
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
