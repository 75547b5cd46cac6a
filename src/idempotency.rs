//! A layer that runs each request once, and answers repeats with the first response.
//!
//! A client that got no answer in time sends its request again, with the same key, and so does the sender of a webhook. A lock makes
//! such repeats wait for each other, but they still run. Behind this layer the work runs once, and each repeat gets the response of
//! the first request.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::Router;
//! use axum::routing::post;
//! use tower_distributed_lock::idempotency::key;
//! use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
//! # async fn pay() {}
//! # async fn pushed() {}
//!
//! /// Set by the authentication, which is outside of the layer.
//! #[derive(Clone)]
//! struct User(String);
//! # impl AsRef<str> for User { fn as_ref(&self) -> &str { &self.0 } }
//!
//! let locks = LockClient::new(MemoryStore::new());
//! let payments = IdempotencyLayer::payments(locks.clone()).tenant_from::<User>();
//! let webhooks = IdempotencyLayer::webhook(locks, key::github()); // inside of the check of the signature
//! let app: Router = Router::new()
//!     .route("/payments", post(pay).route_layer(payments))
//!     .route("/webhooks/github", post(pushed).route_layer(webhooks));
//! # }
//! ```
//!
//! # What a request goes through
//!
//! 1. Requests that do not write (GET, HEAD, QUERY, OPTIONS, TRACE, CONNECT) pass. Requests without a
//!    [`key`](IdempotencyLayer::key) pass too, unless it is [`required`](IdempotencyLayer::required). The layer does not read their
//!    bodies.
//! 2. The layer reads the body, up to [`body_limit`](IdempotencyLayer::body_limit) bytes. Method, host (without its port), path, query,
//!    content type, content encoding and body make the [`fingerprint`](IdempotencyLayer::fingerprint) of the request. The
//!    boundary of a multipart form is left out, because a client's library draws a new one for each attempt.
//! 3. The layer reads the record of the key. If there is one, it is the answer, with `Idempotent-Replayed: true`. Records do not
//!    change, so a replay needs no lock.
//! 4. Otherwise the layer takes the lock of the key, and reads the record again.
//! 5. If there is still no record, the inner service runs, to its end even if the client hangs up. The handler can extract the name of
//!    the record ([`IdempotencyKey`]) and the lock ([`LockHandle`](crate::LockHandle)).
//! 6. The layer records the response and releases the lock **in one step**, which fails if the lock was lost in the meantime. It
//!    sends the response when the store has confirmed that step.
//!
//! # What is promised
//!
//! During the [`retention`](IdempotencyLayer::retention), at most one execution per key is answered with a response that is
//! [recorded](self#what-is-recorded). Responses that are not recorded have no such promise. The handler may begin twice: a process
//! that dies in the middle leaves no record, so the repeat runs once the lease has expired.
//!
//! The promise costs one round trip to the store after the handler. If the store does not confirm the record within a second
//! ([`Confirm::Strict`], the default), the layer looks for a record once more: its own, or the record of a request that ran in its
//! place. Without one, the client gets a 500 with `"outcome": "unknown"`. [`Confirm::Store`] sends the handler's response in that
//! case, without the promise: the record may never be stored, and a repeat may also run and be answered.
//!
//! | cause | status |
//! |---|---|
//! | a request with this key is still running elsewhere, and the wait is over | 409 `request-in-progress`, with `Retry-After` |
//! | the key was used for another request, by the fingerprint | 422 `key-reused` |
//! | the key is required and absent, or it is malformed | 400 `key-missing`, `key-invalid` |
//! | the request's body is too long, or too slow | 413 `body-too-large`, 408 `body-timeout` |
//! | the lock was lost, or the store did not confirm the record | 500 `lock-lost`, `"outcome": "unknown"` |
//! | the request has no tenant, although the program sets a [`tenant`](IdempotencyLayer::tenant) | 500 `lock-misconfigured` |
//! | another program wrote the record | 500 `record-unreadable` |
//! | the store does not answer, too many requests wait, or their bodies have no room | 503, with `Retry-After` |
//!
//! # What is recorded
//!
//! What a repeat cannot change: 2xx, 3xx, 402 and 410. Other refusals are not recorded, because the same request may succeed later:
//! the client refreshes its token (401), gets the right (403), corrects its `If-Match` (412), or the resource appears (404).
//! [`record_if`](IdempotencyLayer::record_if) decides otherwise for all responses, and [`Recording`] in the extensions of a response
//! for this one. The layer never records answers of this crate's layers further in, or an upgrade (101), whose connection no record
//! can replay. A panic, a lost lock, and a handler that is dropped record nothing.
//!
//! The layer sends these responses unrecorded, so that a repeat runs again: a response longer than
//! [`response_limit`](IdempotencyLayer::response_limit), a stream that does not end at once, and a response with trailers. The log has
//! a warning, once a minute. A body that ends before its `Content-Length` is not recorded either, and its client sees an error
//! instead of a response that looks whole.
//!
//! A record leaves out the headers that belong to one answer: hop-by-hop headers, `Date`, `Server-Timing`, trace and request ids, and
//! CORS headers, so CORS belongs outside of this layer. It leaves out `Set-Cookie` unless the handler says [`Recording::WithCookies`].
//! Compression belongs outside too: the layer removes `Accept-Encoding` from the request, because clients that accept other encodings
//! may get the record.
//!
//! # What records cost
//!
//! A record is the response and about 100 bytes, and stays in the store for its retention. A client that chooses its keys can store a
//! record for each of its requests, each with up to [`response_limit`](IdempotencyLayer::response_limit) bytes and the header lines:
//! limit its rate, or choose smaller values. A [`MemoryStore`](crate::MemoryStore) drops the oldest records beyond its limit. Records
//! may have a server of their own: with a separate [`LockClient`] for this layer, a server that is full of records refuses no other
//! lock.
//!
//! # Where to put it
//!
//! **Inside authentication and signature checks**, because a record answers every request with its key, and the keys of webhooks
//! verify nothing. Outside of [`DistributedLockLayer`](crate::DistributedLockLayer), whose 423 is then not recorded. A layer whose
//! store keeps no records is refused when it is built.
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

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;
#[cfg(doc)]
use tower_layer::Layer;

use crate::client::LockClient;
use crate::key::{AnyKey, KeyExtractor};
use crate::layer::{Closure, Confirm, ServeSettings, service, shared_setters, tenant_from};

mod admission;
mod claimed;
mod fingerprint;
mod identity;
pub mod key;
mod local;
mod protocol;
mod record;
mod recording;
mod settings;

pub use claimed::IdempotencyKey;
pub use recording::Recording;

use fingerprint::Fingerprint;
use identity::Clients;
use key::{Provider, idempotency_key};
use local::LocalRecords;
use settings::IdempotencySettings;

/// Runs each request once per idempotency key. See the [module](self).
///
/// The clients that share keys have no default: call [`tenant`](Self::tenant), [`tenant_from`](Self::tenant_from) or
/// [`shared`](Self::shared).
///
/// By default the key is the header `Idempotency-Key`, which may be absent; a repeat waits 3 s for the first request; the
/// lease is renewed at 30 s, for up to 5 min; a handler runs to its end even if its client hangs up; a record is kept for a day;
/// request bodies may have 2 MiB and recorded responses 64 KiB; a response is sent when its record is stored ([`Confirm::Strict`]).
///
/// # Panics
///
/// [`Layer::layer`] (so `Router::layer`, too) panics if the clients that share keys are not chosen, if the store keeps no records,
/// and on invalid or contradictory settings. The text names the change. With `MethodRouter::route_layer`, axum calls it when the
/// router gets its state: end a router with `.with_state(())`. Setters do not panic. A duration that is longer than ten years is taken
/// as ten years.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// # use axum::{Router, routing::post};
/// # async fn pay() {}
/// # #[derive(Clone)] struct User(String);
/// # impl AsRef<str> for User { fn as_ref(&self) -> &str { &self.0 } }
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use std::time::Duration;
/// use tower_distributed_lock::IdempotencyLayer;
///
/// let once = IdempotencyLayer::new(locks)
///     .tenant_from::<User>() // two users' keys never meet
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
    /// Creates a layer on a [`LockClient`] or a store, with default settings. It also needs a [`tenant`](Self::tenant) or
    /// [`shared`](Self::shared).
    pub fn new(client: impl Into<LockClient>) -> Self {
        Self {
            key: AnyKey::new(idempotency_key()),
            settings: IdempotencySettings::new(client.into()),
        }
    }

    /// Creates a layer for payments and the like: each request needs the header `Idempotency-Key`. It also needs the user as a
    /// [`tenant`](Self::tenant).
    ///
    /// ```
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// # #[derive(Clone)] struct User(String);
    /// # impl AsRef<str> for User { fn as_ref(&self) -> &str { &self.0 } }
    /// IdempotencyLayer::payments(locks).tenant_from::<User>()
    /// # ;
    /// ```
    pub fn payments(client: impl Into<LockClient>) -> Self {
        Self::new(client).required()
    }

    /// Creates a layer for the webhooks of one provider: each needs its id, all share one scope, a repeat is answered before the
    /// provider gives up, and records are kept for as long as the provider repeats.
    ///
    /// **The layer verifies nothing**: put it inside of the check of the provider's signature. See [`key`].
    ///
    /// ```
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// use tower_distributed_lock::idempotency::key;
    ///
    /// # let locks = LockClient::new(MemoryStore::new());
    /// IdempotencyLayer::webhook(locks, key::github())
    /// # ;
    /// ```
    pub fn webhook<K: KeyExtractor>(client: impl Into<LockClient>, provider: Provider<K>) -> Self {
        let (wait, retention) = (provider.wait(), provider.retention);
        let layer = Self::new(client).key(provider).required().shared();
        layer.wait(wait).retention(retention)
    }

    /// Sets the extractor of the idempotency key: one of [`idempotency::key`](key), one of [`key`](crate::key), or a closure over
    /// `&Parts`. Several keys together form one.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = AnyKey::new(key);
        self
    }

    shared_setters!();

    tenant_from!();

    #[track_caller]
    fn serve(mut self, change: impl FnOnce(&mut ServeSettings)) -> Self {
        change(&mut self.settings.serve);
        if let Err(reason) = self.settings.serve.check() {
            panic!("this `IdempotencyLayer` cannot serve requests: {reason}");
        }
        self
    }

    #[track_caller]
    fn check_complete(&self) {
        if let Err(reason) = self.settings.check() {
            panic!("this `IdempotencyLayer` cannot serve requests: {reason}");
        }
    }

    /// Answers requests without a key 400 `key-missing`, instead of letting them pass unprotected.
    pub fn required(mut self) -> Self {
        self.settings.required = true;
        self
    }

    /// Keeps the keys of tenants apart, so that two tenants may use the same key.
    ///
    /// The tenant is the account or the user that must not see the responses of another one. Take it from the server's own state,
    /// such as an extension that the authentication sets ([`tenant_from`](Self::tenant_from)), never from a header that the client
    /// controls. It is not derived from `Authorization` or `Cookie`, because these change between a request and its repeat, which
    /// would then run again. The request's body ([`key::body`](crate::key::body)) is not there.
    ///
    /// If the closure returns `None`, the authentication is probably on the wrong side of the layer. The request gets a 500
    /// `lock-misconfigured`, the reason is logged as an error, and nothing runs, unless [`anonymous`](Self::anonymous) allows such
    /// requests.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// #[derive(Clone)]
    /// struct Session { user: u64 }
    ///
    /// # let locks = LockClient::new(MemoryStore::new());
    /// IdempotencyLayer::new(locks)
    ///     .tenant(|parts: &Parts| Some(parts.extensions.get::<Session>()?.user.to_string()))
    /// # ;
    /// ```
    pub fn tenant<F>(mut self, tenant: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.scope.clients = Clients::PerTenant(Closure(Arc::new(tenant)));
        self
    }

    /// Allows requests without a [`tenant`](Self::tenant), which share their keys as [`shared`](Self::shared) says.
    pub fn anonymous(mut self) -> Self {
        self.settings.scope.anonymous = true;
        self
    }

    /// Serves the keys of all clients as one.
    ///
    /// **A client that sends the key and the request of another client gets that client's response**, and its own request does
    /// not run. Use it for webhooks, whose sender signs them and has no session, and for services with one client.
    pub fn shared(mut self) -> Self {
        self.settings.scope.clients = Clients::Shared;
        self
    }

    /// Names the scope of the keys, in place of the method and the route of a request.
    ///
    /// By default, a key on another method or route is another key. A record is found again after a deploy has renamed a parameter of
    /// the route, but not after it has moved the route, or the nest that the route is in. With a scope that has a name it is found
    /// again when the nest moves. Routes that share a scope share its keys: the second one to use a key gets a 422, because the method
    /// and the path inside of the nest belong to the [`fingerprint`](Self::fingerprint).
    pub fn scope(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.settings.scope.name = Some(name.into());
        self
    }

    /// Sets the function by which two requests with one key are compared, instead of the default fingerprint. A request with another
    /// fingerprint gets a 422.
    ///
    /// The closure returns all bytes that count, and the layer records their digest. Leave out parts that the sender may change in a
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
        self.settings.fingerprint = Some(Closure(Arc::new(move |parts: &Parts, body: &[u8]| {
            Fingerprint::of_bytes(fingerprint(parts, body).as_ref())
        })));
        self
    }

    /// Sets how long a record is kept (default 24 h): choose more than the time for which senders repeat. For the size of records
    /// see [above](self#what-records-cost).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets which responses are recorded, by their heads, instead of 2xx, 3xx, 402 and 410. A handler decides about a single response
    /// by a [`Recording`] in its extensions.
    pub fn record_if<F>(mut self, is_final: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.settings.record_if = Closure(Arc::new(is_final));
        self
    }

    /// Sets how long (bytes) the body of a request with a key may be (default 2 MiB); a longer one is answered 413, as by
    /// the body limit of [`DistributedLockLayer`](crate::DistributedLockLayer).
    pub fn body_limit(mut self, limit: usize) -> Self {
        self.settings.serve.body_reader.limit = Some(limit);
        self
    }

    /// Sets how long (bytes) the body of a recorded response may be (default 64 KiB). A longer one is sent unrecorded, with a
    /// warning in the log. For the size of records see [above](self#what-records-cost).
    pub fn response_limit(mut self, limit: usize) -> Self {
        self.settings.response_limit = limit;
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

    /// Remembers up to `limit` records in this process, so that it replays them without asking the store (default: none).
    ///
    /// Records do not change, so a copy is as good. It takes as much memory as the record, and a record that another process has made
    /// is remembered for a minute. [`LockAdmin::forget_record`](crate::LockAdmin::forget_record) does not reach the copies.
    pub fn local_records(mut self, limit: usize) -> Self {
        self.settings.local = Arc::new(LocalRecords::new(limit));
        self
    }
}

service! {
    /// Runs each request once per idempotency key. See [`IdempotencyLayer`].
    Idempotency of IdempotencyLayer
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
