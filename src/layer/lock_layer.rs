//! The layer and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;

use super::body_mode::{Buffered, DefaultBody, Streamed};
use super::closure::Closure;
use super::locking::Locking;
use super::mode::ModePolicy;
use super::policy::Policy;
use super::rejection::Rejection;
use super::respond::Responder;
use super::settings::{Confirm, OnCancel, OnLost, OnMissing, OnUnavailable, ReleaseOn};
use crate::client::LockClient;
use crate::error::BoxError;
use crate::key::{AnyKey, DefaultKey, KeyExtractor};
use crate::lock::{Lease, LockMode};

/// Puts a distributed lock around each request.
///
/// By default the key is the matched axum route with its parameters, or the path ([`DefaultKey`]); GET, HEAD and QUERY read,
/// OPTIONS, TRACE and CONNECT pass without a lock, other methods write; a body of axum is read first, up to 2 MiB; a request
/// waits 10 s at most, its lease is renewed at 30 s, it holds for 5 min at most, and 1024 requests may wait for a key at a time.
///
/// On axum, add it by `Router::route_layer`, after the routes that it locks. `Router::layer` makes every path of the router
/// depend on the store, also `/healthz` and 404.
///
/// # Panics
///
/// [`Layer::layer`] (so `Router::layer`, too) panics on invalid or contradictory settings, and on settings that the store does
/// not support. The text names the change. axum applies the layer of a `MethodRouter::route_layer` when the router gets its state:
/// end a router with `.with_state(())`, so that it panics at the start and not at the first connection. That of a `Handler::layer` it
/// applies at each request. Setters do not panic. A duration that is longer than ten years is taken as ten years.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// # use axum::{Router, routing::get};
/// # async fn show() {}
/// # async fn replace() {}
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use std::time::Duration;
/// use tower_distributed_lock::{DistributedLockLayer, key};
///
/// let lock = DistributedLockLayer::new(locks)
///     .key(key::param("lock:document", "id")) // one lock for each document, whatever the route
///     .wait(Duration::from_secs(2)); // then 423
/// let app: Router = Router::new().route("/documents/{id}", get(show).put(replace)).route_layer(lock);
/// # }
/// ```
#[must_use = "a layer does nothing until it is applied"]
#[derive(Clone)]
pub struct DistributedLockLayer<M = DefaultBody> {
    pub(super) key: AnyKey,
    pub(super) policy: Policy,
    body: PhantomData<fn() -> M>,
}

impl DistributedLockLayer {
    /// A layer that uses `client`, with default settings.
    ///
    /// **A route without parameters is one key**: by default every `POST /orders` waits for the previous one, in all processes.
    /// Leave such routes out of the layer, or choose a [`key`](Self::key).
    pub fn new(client: LockClient) -> Self {
        Self {
            key: AnyKey::Default(DefaultKey::default()),
            policy: Policy::new(client),
            body: PhantomData,
        }
    }
}

impl<M> DistributedLockLayer<M> {
    /// Sets the key of a request: an extractor of [`key`](crate::key), or a closure over `&Parts`.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = AnyKey::new(key);
        self
    }

    /// Locks each tenant's things apart: order 42 of one tenant is not order 42 of another.
    ///
    /// A key `lock:order:42` of the tenant `acme` is `lock:order:42:@acme`, as [`ResourceKey::tenant`] makes it for a job. Take
    /// the tenant from the server's own state, such as an extension that the authentication has set, never from a header
    /// that the client controls. The request's body ([`key::body`](crate::key::body)) is not there. Requests for which the closure
    /// returns `None` lock the key as it is.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, key};
    /// #[derive(Clone)]
    /// struct Tenant(String);
    ///
    /// # let locks = LockClient::new(MemoryStore::new());
    /// DistributedLockLayer::new(locks)
    ///     .key(key::path())
    ///     .tenant(|parts: &Parts| parts.extensions.get::<Tenant>().map(|tenant| tenant.0.clone()))
    /// # ;
    /// ```
    ///
    /// [`ResourceKey::tenant`]: crate::ResourceKey::tenant
    pub fn tenant<F>(mut self, tenant: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.policy.tenant = Some(Closure(Arc::new(tenant)));
        self
    }

    /// Looks only at requests for which `predicate` is true; others pass without a lock (default: all requests).
    ///
    /// ```
    /// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// DistributedLockLayer::new(locks).when(|parts| !parts.uri.path().ends_with("/preview"))
    /// # ;
    /// ```
    pub fn when<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.policy.serve.when = Some(Closure(Arc::new(predicate)));
        self
    }

    /// Adds the time that a request waited for its lock and held it to the response, as `lock-wait` and `lock-hold` of the
    /// header `Server-Timing` (default: not). With [`ReleaseOn::BodyEnd`] the head goes out before the hold ends, and has the
    /// wait only.
    ///
    /// It tells clients how busy a resource is, so use it where that is no secret.
    pub fn server_timing(mut self) -> Self {
        self.policy.server_timing = true;
        self
    }

    /// Sets the mode of a request: [`by_method`](super::by_method) (the default), a [`LockMode`], or a closure over `&Parts`.
    ///
    /// A [`LockMode`] is for every method, OPTIONS too: a CORS preflight that reaches the layer waits for its lock.
    /// With [`safe_methods`](Self::safe_methods) it passes.
    pub fn mode(mut self, mode: impl ModePolicy) -> Self {
        self.policy.mode = Closure(Arc::new(mode));
        self
    }

    /// Admits at most `limit` requests at a time per key, over all processes, whatever their method. The same as
    /// [`mode`](Self::mode) with [`LockMode::permits`], which says more.
    ///
    /// A request whose wait is over is answered 429 `no-permit` with `Retry-After`: see
    /// [`no_permit_status`](Self::no_permit_status). With [`wait`](Self::wait) of zero it is answered at once.
    ///
    /// ```
    /// # #[cfg(feature = "axum")] {
    /// use std::time::Duration;
    /// use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, key};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// // At most 10 requests of a tenant at a time, in the whole fleet.
    /// DistributedLockLayer::new(locks)
    ///     .key(key::param("permit:tenant", "tenant"))
    ///     .permits(10)
    ///     .wait(Duration::from_secs(2))
    /// # ; }
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    pub fn permits(self, limit: u32) -> Self {
        self.mode(LockMode::permits(limit))
    }

    /// Sets the mode of GET, HEAD and QUERY in place of `mode`; `None` lets them pass without a lock. OPTIONS, TRACE and CONNECT
    /// pass without a lock then, whatever `mode` says of them.
    pub fn safe_methods(mut self, mode: impl Into<Option<LockMode>>) -> Self {
        self.policy.safe = Some(mode.into());
        self
    }

    /// Sets how long a request waits for its lock (default 10 s). Zero: one attempt.
    ///
    /// The server does not always notice a disconnected client while its request waits (HTTP/1 with an unread body, or with any
    /// byte after the request), so the wait is always finite.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.policy.serve.wait = wait;
        self
    }

    /// Sets how long the lock outlives a process that dies, and whether it is renewed (default: renewed, 30 s; at least 10 ms).
    pub fn lease(mut self, lease: Lease) -> Self {
        self.policy.serve.lease = lease;
        self
    }

    /// Sets how long a request may hold its lock (default 5 min; at least 10 ms), so that a handler that hangs does not hold it
    /// for ever. After that the lock counts as lost. `None`: without limit.
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.policy.serve.max_hold = max_hold.into();
        self
    }

    /// Sets how many requests of this process may wait for the same key at a time (default 1024); one more is answered 503
    /// without waiting for the lock, see [`overload_delay`](Self::overload_delay). The request that asks the store for all of
    /// them does not count.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.policy.serve.max_waiters = max_waiters;
        self
    }

    /// Sets how long the answer to a request is delayed at most that is refused for overload: 503 `lock-overloaded` and
    /// `body-budget` (default 1 s). Zero answers at once.
    ///
    /// A client that ignores `Retry-After` comes back at once, and a thousand of them would leave no processor time to the
    /// request that holds the lock. So the layer, with its clones, answers about a thousand such requests per second: the first
    /// at once, the others later, in their order. A request is never delayed for longer than [`wait`](Self::wait). It keeps
    /// its connection and its place in a limit of requests outside this layer meanwhile, and neither its body nor a place among
    /// the waiters. Of more than 16,384 delayed requests, the next one is answered at once.
    pub fn overload_delay(mut self, longest: Duration) -> Self {
        self.policy.serve.overload_delay.longest = longest;
        self
    }

    /// Requests a fencing token with every exclusive lock: see [`FencingToken`](crate::FencingToken).
    pub fn fenced(mut self) -> Self {
        self.policy.fenced = true;
        self
    }

    /// Sets how to treat a request without a key (default: 400).
    pub fn on_missing(mut self, on_missing: OnMissing) -> Self {
        self.policy.on_missing = on_missing;
        self
    }

    /// Sets how to treat a request when the store is unavailable (default: 503).
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> Self {
        self.policy.on_unavailable = on_unavailable;
        self
    }

    /// The same for requests that only read.
    pub fn on_unavailable_reads(mut self, on_unavailable: OnUnavailable) -> Self {
        self.policy.on_unavailable_reads = Some(on_unavailable);
        self
    }

    /// Sets how to treat a handler whose lock is lost (default: it is dropped at once).
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.policy.on_lost = on_lost;
        self
    }

    /// Sets how to treat a handler whose client has disconnected (default: it is dropped).
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.policy.serve.on_cancel = on_cancel;
        self
    }

    /// Sets what must confirm that the lock was held until the end, before the response is sent. By default requests that write
    /// are [`Confirm::Strict`], or [`Confirm::Store`] with [`OnUnavailable::Proceed`], and requests that only read are
    /// [`Confirm::Store`]. This sets both. The response has its confirmation: see [`Confirmation`](super::Confirmation).
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.policy.confirm = Some(confirm);
        self
    }

    /// The same for requests that only read.
    pub fn confirm_reads(mut self, confirm: Confirm) -> Self {
        self.policy.confirm_reads = Some(confirm);
        self
    }

    /// Sets when the lock is released.
    pub fn release_on(mut self, release_on: ReleaseOn) -> Self {
        self.policy.release_on = release_on;
        self
    }

    /// Sets the status of a request whose wait is over (default 423). Many HTTP clients retry 409 or 503 automatically, and
    /// not 423.
    pub fn contended_status(mut self, status: impl TryInto<StatusCode>) -> Self {
        // An invalid status is refused like one that is not an error, when the layer is built.
        self.policy.serve.contended_status = status.try_into().unwrap_or(StatusCode::OK);
        self
    }

    /// The status of a request that has waited for a permit in vain (default 429). See [`permits`](Self::permits).
    pub fn no_permit_status(mut self, status: impl TryInto<StatusCode>) -> Self {
        self.policy.serve.no_permit_status = status.try_into().unwrap_or(StatusCode::OK);
        self
    }

    /// Sets your own response to requests that are not served. The layer puts the [`Rejection`] into its extensions, and removes
    /// the body of a response to HEAD.
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
        self.policy.serve.responder = Responder::new(respond);
        self
    }

    /// Reads every request's body, at most `limit` bytes, before the lock is requested.
    ///
    /// The lock is not held while the body arrives, and a client that disconnects while its request waits is noticed at once, unless
    /// it has sent more than its request over HTTP/1, such as the next one.
    ///
    /// `axum::body::Body` is read in this way by default, up to 2 MiB. A longer body is answered 413. If its declared length is
    /// longer, none of it is read, as with `tower_http::limit`: a client with `Expect: 100-continue` need not send it, and one
    /// that writes without reading may see a closed connection in place of the 413. Trailers of the request are dropped. Keys may
    /// come from a body that is read: see [`key::json_field`](crate::key::json_field) and [`key::body`](crate::key::body). The body of a request without a lock is not read.
    ///
    /// The body type of the requests must be convertible from [`Bytes`], as axum's is.
    pub fn buffer_body(mut self, limit: usize) -> DistributedLockLayer<Buffered> {
        self.policy.serve.body_reader.limit = limit;
        self.with_body()
    }

    /// Leaves the request's body to the handler, which reads it while the lock is held: for uploads that are too long for the
    /// memory, and for streams.
    ///
    /// **A slow sender then holds the lock**, for at most [`max_hold`](Self::max_hold).
    pub fn stream_body(self) -> DistributedLockLayer<Streamed> {
        self.with_body()
    }

    /// Sets how long the body of a request may take to arrive, if it is read before the lock is requested (default 60 s). A
    /// slower one is answered 408.
    pub fn body_time_limit(mut self, limit: Duration) -> Self {
        self.policy.serve.body_reader.time_limit = limit;
        self
    }

    /// Sets how much memory (bytes) the bodies that are read may occupy together, until their handlers drop them (default 64
    /// MiB). A request without room for its body is answered 503. Clones of the layer share the budget.
    pub fn body_budget(mut self, bytes: usize) -> Self {
        self.policy.serve.body_reader.budget(bytes);
        self
    }

    fn with_body<N>(self) -> DistributedLockLayer<N> {
        DistributedLockLayer {
            key: self.key,
            policy: self.policy,
            body: PhantomData,
        }
    }

    /// Sets how many keys one request may name (default 32). More are answered 400 `key-invalid`, as are more than the client's
    /// [`max_keys_per_request`](crate::LockClientBuilder::max_keys_per_request).
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.policy.max_keys = max_keys;
        self
    }
}

/// Serves each request under its lock. See [`DistributedLockLayer`].
pub type DistributedLock<S, M = DefaultBody> = Locking<S, DistributedLockLayer<M>>;

impl<S, M: Clone> Layer<S> for DistributedLockLayer<M> {
    type Service = DistributedLock<S, M>;

    fn layer(&self, inner: S) -> Self::Service {
        if let Err(reason) = self.policy.check() {
            panic!("this `DistributedLockLayer` cannot serve requests: {reason}");
        }
        Locking::new(inner, self.clone())
    }
}

impl<M> fmt::Debug for DistributedLockLayer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLockLayer")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
