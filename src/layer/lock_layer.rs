//! The layer and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use super::mode::ModePolicy;
use super::policy::Policy;
use super::service::service;
use super::setters::{shared_setters, tenant_from};
use super::settings::{Confirm, OnCancel, OnLost, OnMissing, OnUnavailable, ReadPolicy, ReleaseOn};
use crate::client::LockClient;
use crate::key::{AnyKey, KeyExtractor};
#[cfg(doc)]
use crate::lock::LockMode;

/// Holds a distributed lock while each request runs.
///
/// By default the key is the matched axum route with its parameters, or the path ([`DefaultKey`](crate::key::DefaultKey)); GET, HEAD
/// and QUERY read, OPTIONS, TRACE and CONNECT pass without a lock, other methods write (on a store without read-write locks, reads
/// take the key for themselves too); a body is read first, up to axum's `DefaultBodyLimit` (2 MiB, and never more than 64 MiB); a request
/// waits up to 10 s, its lease of 30 s is renewed for up to 5 min, and 1024 requests may wait for a key.
///
/// On axum, add it by `Router::route_layer`, after the routes that it locks. `Router::layer` makes every path of the router
/// depend on the store, even `/healthz` and 404.
///
/// A layer is cheap to clone. Its clones share the memory for bodies and the statistics for `Retry-After`, which are kept for each
/// route.
///
/// # Panics
///
/// A setter panics if its value is wrong, contradicts an earlier one, or is not supported by the store, and the text names the change.
/// So a wrong setting is found when the program makes the layer, wherever it is mounted. A duration that is longer than ten years is
/// taken as ten years.
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
pub struct DistributedLockLayer<const STREAMED: bool = false> {
    pub(super) policy: Arc<Policy>,
}

impl DistributedLockLayer {
    /// Creates a layer with the default settings, on a [`LockClient`] or a store.
    ///
    /// **A route without parameters is one key**: by default every `POST /orders` waits for the previous one, in all processes.
    /// Leave such routes out of the layer, or choose a [`key`](Self::key).
    pub fn new(client: impl Into<LockClient>) -> Self {
        Self {
            policy: Arc::new(Policy::new(client.into())),
        }
    }

    /// Leaves the request's body to the handler, which reads it while the lock is held: for uploads that are too long for the
    /// memory, for streams, and for bodies that cannot be made of `Bytes`.
    ///
    /// **A slow sender then holds the lock**, until [`max_hold`](Self::max_hold) is over. Without this, bodies are read before the
    /// lock is requested, so that a slow sender holds no lock, and a client that disconnects while its request waits is noticed at
    /// once. A body longer than axum's `DefaultBodyLimit` (2 MiB if it is not set, or without axum), or than 64 MiB whatever that limit is,
    /// gets a 413, a body that takes longer than a minute a 400. A `DefaultBodyLimit` further in, such as that of a handler, is not seen:
    /// set it outside of this layer. Trailers of the request are dropped, and a request without a lock keeps its body.
    ///
    /// **A client that waits for an answer before its body ends needs this.** The messages of a gRPC call are left to the handler in
    /// any case if the route, nested or not, is that of a service of tonic: `/<package>.<Service>/{*rest}`, where the package may be
    /// absent and the service begins with a capital letter. The content type alone does not tell, because a stranger could then hold
    /// a lock with a slow body. A call of another route is logged as a warning, once per route.
    ///
    /// The bodies that wait for one key may occupy 16 MiB; the first 64 KiB of each do not count, and a body is no longer counted
    /// when its handler has it. A request without room for its body gets a 503 `body-budget`. A body takes no room from those of
    /// other keys, and none while it is still arriving. So limit the number of connections, and of streams on each: with 200 streams, as
    /// hyper allows on an HTTP/2 connection, 400 MiB of bodies may be arriving on one.
    pub fn stream_body(self) -> DistributedLockLayer<true> {
        DistributedLockLayer {
            policy: self.policy,
        }
    }
}

impl<const STREAMED: bool> DistributedLockLayer<STREAMED> {
    /// Sets the key of a request: an extractor of [`key`](crate::key), or a closure over `&Parts`.
    #[track_caller]
    pub fn key(self, key: impl KeyExtractor) -> Self {
        let key = AnyKey::new(key);
        self.change(|policy| {
            policy.key = key;
            // Other keys are held for other times.
            policy.serve.hold_times = Arc::default();
        })
    }

    /// Locks each tenant's things apart: order 42 of one tenant is not order 42 of another.
    ///
    /// A key `lock:order:42` of the tenant `acme` is `lock:order:42:@acme`, as [`ResourceKey::tenant`] makes it for a job. Take
    /// the tenant from the server's own state, such as an extension that the authentication has set, never from a header
    /// that the client controls: see [`tenant_from`](Self::tenant_from). The request's body ([`key::body`](crate::key::body)) is not
    /// there.
    ///
    /// If the closure returns `None`, the authentication is probably on the wrong side of the layer. The request gets a 500
    /// `lock-misconfigured`, the reason is logged as an error, and nothing runs, unless [`anonymous`](Self::anonymous) allows such
    /// requests.
    ///
    /// [`ResourceKey::tenant`]: crate::lock::ResourceKey::tenant
    #[track_caller]
    pub fn tenant<F>(self, tenant: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.serve(|serve| serve.tenant = Some(Arc::new(tenant)))
    }

    tenant_from!(Self);

    /// Sets the mode of a request: [`by_method`](super::mode::by_method) (the default), [`writes_only`](super::mode::writes_only), a
    /// [`LockMode`], or a closure over `&Parts`, which returns `None` for a request that needs no lock.
    ///
    /// A [`LockMode`] is for every method, OPTIONS too: a CORS preflight that reaches the layer waits for its lock.
    ///
    /// With [`LockMode::permits`], a number of requests at a time are admitted per key, over all processes. A request whose wait is
    /// over gets a 429 `no-permit` with `Retry-After`:
    ///
    /// ```
    /// # #[cfg(feature = "axum")] {
    /// use std::time::Duration;
    /// use tower_distributed_lock::{DistributedLockLayer, LockClient, LockMode, MemoryStore, key};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// // Up to 10 requests of a tenant at a time, in the whole fleet.
    /// DistributedLockLayer::new(locks)
    ///     .key(key::param("permit:tenant", "tenant"))
    ///     .mode(LockMode::permits(10))
    ///     .wait(Duration::from_secs(2))
    /// # ; }
    /// ```
    #[track_caller]
    pub fn mode(self, mode: impl ModePolicy) -> Self {
        self.change(|policy| policy.mode = Some(Arc::new(mode)))
    }

    shared_setters!();

    /// Sets how long a request may hold its lock (default 5 min, or the [`lease`](Self::lease) if it is longer), so that a handler
    /// that hangs does not hold it forever. After that the lock counts as lost, also for guards that
    /// [share](crate::LockHandle::share) it and for layers further in that have locked the same key.
    ///
    /// # Panics
    ///
    /// If it is shorter than 10 ms.
    #[track_caller]
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.serve(|serve| serve.max_hold = Some(max_hold))
    }

    /// Sets how many requests of this process may wait for the same key at a time. One more gets a 503 `lock-overloaded`
    /// without waiting. The request that asks the store for all of them does not count.
    pub fn max_waiters(self, max_waiters: usize) -> Self {
        self.serve(|serve| serve.max_waiters = max_waiters)
    }

    /// Sets what happens to a handler whose client has disconnected.
    pub fn on_cancel(self, on_cancel: OnCancel) -> Self {
        self.serve(|serve| serve.on_cancel = on_cancel)
    }

    /// Requests a fencing token with every exclusive lock: see [`FencingToken`](crate::FencingToken).
    #[track_caller]
    pub fn fenced(self) -> Self {
        self.change(|policy| policy.fenced = true)
    }

    /// Sets how to treat a request without a key (default: 400).
    pub fn on_missing(self, on_missing: OnMissing) -> Self {
        self.change(|policy| policy.on_missing = on_missing)
    }

    /// Sets how to treat a request when the store is unavailable (default: 503). [`reads`](Self::reads) decides otherwise for
    /// requests that only read.
    pub fn on_unavailable(self, on_unavailable: OnUnavailable) -> Self {
        self.change(|policy| policy.on_unavailable = on_unavailable)
    }

    /// Sets how to treat a handler whose lock is lost (default: it is dropped at once).
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.change(|policy| policy.on_lost = on_lost)
    }

    /// Sets what must confirm that the lock was held until the end, before the response is sent. By default requests that write
    /// are [`Confirm::Strict`], or [`Confirm::Store`] with [`OnUnavailable::Proceed`], and requests that only read are
    /// [`Confirm::Store`]. This sets both, unless [`reads`](Self::reads) decides for requests that only read. The response has its
    /// confirmation: see [`LockTiming`](super::LockTiming).
    pub fn confirm(self, confirm: Confirm) -> Self {
        self.change(|policy| policy.confirm = Some(confirm))
    }

    /// Sets how requests that only read are confirmed, and what happens to them when the store is unavailable.
    pub fn reads(self, reads: ReadPolicy) -> Self {
        self.change(|policy| policy.reads = Some(reads))
    }

    /// Sets when the lock is released.
    pub fn release_on(self, release_on: ReleaseOn) -> Self {
        self.change(|policy| policy.release_on = release_on)
    }

    #[track_caller]
    fn change(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        let policy = Arc::make_mut(&mut self.policy);
        change(policy);
        if let Err(reason) = policy.check() {
            panic!("this `DistributedLockLayer` cannot serve requests: {reason}");
        }
        self
    }
}

service! {
    /// Serves each request under its lock. See [`DistributedLockLayer`].
    DistributedLock [const STREAMED = false] of DistributedLockLayer<STREAMED>
}

impl<const STREAMED: bool> fmt::Debug for DistributedLockLayer<STREAMED> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLockLayer")
            .finish_non_exhaustive()
    }
}
