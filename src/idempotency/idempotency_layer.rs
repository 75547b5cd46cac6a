//! The layer and its setters.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;

use super::fingerprint::Fingerprint;
use super::key::Provider;
use super::local::LocalRecords;
use super::settings::IdempotencySettings;
use crate::client::LockClient;
use crate::key::{AnyKey, KeyExtractor};
use crate::layer::{OnMissing, TenantOf, service, shared_setters, tenant_from};

/// Runs each request once per idempotency key. See the [module](super).
///
/// The clients that share keys have no default: call [`tenant`](Self::tenant), [`tenant_from`](Self::tenant_from) or
/// [`shared`](Self::shared).
///
/// By default the key is the header `Idempotency-Key`, which may be absent; a repeat waits 3 s for the first request; a record is kept
/// for a day; recorded responses may have 64 KiB. Request bodies may be as long as axum's `DefaultBodyLimit` says (2 MiB), up to 64 MiB. A
/// handler runs to its end even if its client hangs up, for up to 5 min, or its lease if that is longer: work that takes longer belongs
/// in a job. Of each key, 64 repeats may wait in a process.
///
/// # Panics
///
/// [`new`](Self::new) and the constructors on it panic if the store keeps no records, and a setter panics if its value is wrong. The
/// text names the change. So a wrong setting is found when the program makes the layer, wherever it is mounted. A duration that is
/// longer than ten years is taken as ten years.
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
/// A layer whose clients are not chosen is no `Layer` yet, so that the program does not compile:
///
/// ```compile_fail
/// # use axum::{Router, routing::post};
/// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
/// # let locks = LockClient::new(MemoryStore::new());
/// let once = IdempotencyLayer::payments(locks); // whose?
/// let app: Router = Router::new().route("/payments", post(async || "paid").route_layer(once));
/// ```
#[must_use = "a layer does nothing until it is applied"]
#[derive(Clone)]
pub struct IdempotencyLayer<C = ()> {
    pub(super) settings: Arc<IdempotencySettings>,
    clients: PhantomData<C>,
}

/// The program has not chosen yet which clients share their keys: call [`tenant`](IdempotencyLayer::tenant),
/// [`tenant_from`](IdempotencyLayer::tenant_from) or [`shared`](IdempotencyLayer::shared) on the [`IdempotencyLayer`].
#[derive(Debug, Clone)]
pub enum UndecidedClients {}

impl IdempotencyLayer<UndecidedClients> {
    /// Creates a layer on a [`LockClient`] or a store, with default settings. It also needs a [`tenant`](Self::tenant) or
    /// [`shared`](Self::shared).
    ///
    /// # Panics
    ///
    /// If the store keeps no records.
    #[track_caller]
    pub fn new(client: impl Into<LockClient>) -> Self {
        let client = client.into();
        if let Err(reason) = IdempotencySettings::check_store(&client) {
            refuse(reason);
        }
        Self {
            settings: Arc::new(IdempotencySettings::new(client)),
            clients: PhantomData,
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
    ///
    /// # Panics
    ///
    /// If the store keeps no records.
    #[track_caller]
    pub fn payments(client: impl Into<LockClient>) -> Self {
        Self::new(client).required()
    }
}

impl IdempotencyLayer {
    /// Creates a layer for the webhooks of one provider: each needs its id, all share one scope, a repeat is answered before the
    /// provider gives up, and records are kept for as long as the provider repeats.
    ///
    /// **The layer verifies nothing**: put it inside of the check of the provider's signature. See [`idempotency::key`](super::key).
    ///
    /// ```
    /// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
    /// use tower_distributed_lock::idempotency::key;
    ///
    /// # let locks = LockClient::new(MemoryStore::new());
    /// IdempotencyLayer::webhook(locks, key::github())
    /// # ;
    /// ```
    ///
    /// # Panics
    ///
    /// If the store keeps no records.
    #[track_caller]
    pub fn webhook<K: KeyExtractor>(client: impl Into<LockClient>, provider: Provider<K>) -> Self {
        let (wait, retention) = (provider.wait(), provider.retention);
        let layer = IdempotencyLayer::new(client).key(provider).required();
        layer.shared().wait(wait).retention(retention)
    }
}

impl<C> IdempotencyLayer<C> {
    /// Sets the extractor of the idempotency key: one of [`idempotency::key`](super::key), one of [`key`](crate::key), or a closure over
    /// `&Parts`. Several keys together form one.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        self.change(|settings| settings.key = AnyKey::new(key))
    }

    shared_setters!();

    tenant_from!(IdempotencyLayer);

    #[track_caller]
    fn change(mut self, change: impl FnOnce(&mut IdempotencySettings)) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        change(settings);
        if let Err(reason) = settings.serve.check() {
            refuse(reason);
        }
        self
    }

    fn of(self, tenant: Option<TenantOf>) -> IdempotencyLayer {
        let Self { settings, .. } = self.serve(|serve| serve.tenant = tenant);
        IdempotencyLayer {
            settings,
            clients: PhantomData,
        }
    }

    /// Answers requests without a key 400 `key-missing`, instead of letting them pass unprotected.
    pub fn required(self) -> Self {
        self.change(|settings| settings.on_missing = OnMissing::Reject)
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
    pub fn tenant<F>(self, tenant: F) -> IdempotencyLayer
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.of(Some(Arc::new(tenant)))
    }

    /// Serves the keys of all clients as one.
    ///
    /// **A client that sends the key and the request of another client gets that client's response**, and its own request does
    /// not run. Use it for webhooks, whose sender signs them and has no session, and for services with one client.
    pub fn shared(self) -> IdempotencyLayer {
        self.of(None)
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
    pub fn fingerprint<F, T>(self, fingerprint: F) -> Self
    where
        F: Fn(&Parts, &[u8]) -> T + Send + Sync + 'static,
        T: AsRef<[u8]>,
    {
        let fingerprint = move |parts: &Parts, body: &[u8]| {
            Fingerprint::of_bytes(fingerprint(parts, body).as_ref())
        };
        self.change(|settings| settings.fingerprint = Some(Arc::new(fingerprint)))
    }

    /// Sets how long a record is kept (default 24 h), at least the [`lease`](Self::lease): choose more than the time for which senders
    /// repeat. For the size of records see [above](super#what-records-cost).
    pub fn retention(self, retention: Duration) -> Self {
        self.change(|settings| settings.retention = retention)
    }

    /// Sets which responses are recorded, by their heads, instead of 2xx, 3xx, 402 and 410. A handler decides about a single response
    /// by a [`Recording`](super::Recording) in its extensions.
    ///
    /// A response whose length is unknown is recorded only if it ends within 100 ms, unless its `Recording` says otherwise.
    pub fn record_if<F>(self, is_final: F) -> Self
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.change(|settings| settings.record_if = Arc::new(is_final))
    }

    /// Sets how long (bytes) the body of a recorded response may be (default 64 KiB). A longer one is sent unrecorded, with a
    /// warning in the log. For the size of records see [above](super#what-records-cost).
    pub fn response_limit(self, limit: usize) -> Self {
        self.change(|settings| settings.response_limit = limit)
    }

    /// Remembers up to `limit` records in this process, so that it replays them without asking the store (default: none).
    ///
    /// Records do not change, so a copy is as good. It takes as much memory as the record, and a record that another process has made
    /// is remembered for a minute. [`LockAdmin::forget_record`](crate::LockAdmin::forget_record) does not reach the copies.
    pub fn local_records(self, limit: usize) -> Self {
        self.change(|settings| settings.local = Arc::new(LocalRecords::new(limit)))
    }
}

#[track_caller]
fn refuse(reason: &str) -> ! {
    panic!("this `IdempotencyLayer` cannot serve requests: {reason}");
}

service! {
    /// Runs each request once per idempotency key. See [`IdempotencyLayer`].
    Idempotency of IdempotencyLayer
}

impl<C> fmt::Debug for IdempotencyLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").finish_non_exhaustive()
    }
}
