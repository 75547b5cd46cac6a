//! The capabilities of a store.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{DynInspect, Inspect, inspector};
use crate::error::{Feature, Unsupported};
use crate::lock::LockMode;
use crate::telemetry::Database;

/// The end of a store's background work.
type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The capabilities of a store. The value does not change while the store exists: a client asks for it once.
///
/// ```
/// use tower_distributed_lock::LockMode;
/// use tower_distributed_lock::store::{Capabilities, Feature};
///
/// let can = Capabilities::new([LockMode::Reentrant])
///     .fencing()
///     .without(Feature::Records, "locks live in a table without a column for records");
/// assert!(can.check(Feature::Mode(LockMode::Reentrant)).is_ok());
/// let missing = can.check(Feature::Mode(LockMode::Fair)).unwrap_err();
/// assert_eq!(missing.to_string(), "the lock store does not offer `LockMode::Fair`");
/// ```
#[derive(Clone)]
pub struct Capabilities {
    /// Modes, tokens and records, as far as the store has them.
    features: Vec<Feature>,
    renewal_runtime: Option<Arc<dyn Fn() -> Option<Handle> + Send + Sync>>,
    on_shutdown: Option<Arc<dyn Fn() -> End + Send + Sync>>,
    inspector: Option<Arc<dyn DynInspect>>,
    database: Database,
    /// The reasons for missing features, if the store gives them.
    reasons: Vec<Unsupported>,
}

impl Capabilities {
    /// A store of locks in these modes, without fencing tokens and records. One limit of [`LockMode::permits`] stands for
    /// all.
    pub fn new(modes: impl IntoIterator<Item = LockMode>) -> Self {
        Self {
            features: modes.into_iter().map(Feature::Mode).collect(),
            renewal_runtime: None,
            on_shutdown: None,
            inspector: None,
            database: Database::default(),
            reasons: Vec::new(),
        }
    }

    /// A store with every capability.
    pub fn all() -> Self {
        use LockMode::{Fair, Read, Reentrant, Write};
        Self::new([Reentrant, Fair, Read, Write, LockMode::permits(1)])
            .fencing()
            .records()
    }

    /// The store issues fencing tokens.
    #[must_use]
    pub fn fencing(mut self) -> Self {
        self.features.push(Feature::Fencing);
        self
    }

    /// The store keeps records.
    #[must_use]
    pub fn records(mut self) -> Self {
        self.features.push(Feature::Records);
        self
    }

    /// The store has its own runtime for renewals. Without one, holds are renewed on the runtime of their callers.
    ///
    /// A client calls `runtime` before its first renewal. [`renew`](super::LockStore::renew) is then called on that runtime,
    /// even while all workers of the callers' runtime are busy, and its answer must not depend on these workers. The runtime
    /// must live, and be driven, as long as the store exists.
    #[must_use]
    pub fn renewal_runtime(
        mut self,
        runtime: impl Fn() -> Option<Handle> + Send + Sync + 'static,
    ) -> Self {
        self.renewal_runtime = Some(Arc::new(runtime));
        self
    }

    /// Awaits `ended()` when a client is shut down, because the store continues work after its answers. The process may end
    /// afterwards, so the store limits that time.
    #[must_use]
    pub fn on_shutdown<F>(mut self, ended: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_shutdown = Some(Arc::new(move || Box::pin(ended())));
        self
    }

    /// The store offers inspection: `store` is a clone of it. [`LockClient::admin`](crate::LockClient::admin) needs this.
    #[must_use]
    pub fn inspect(mut self, store: impl Inspect) -> Self {
        self.inspector = Some(inspector(store));
        self
    }

    /// The store is a database with this name in OpenTelemetry's conventions (`db.system.name`), such as `redis` or
    /// `postgresql`. [Spans](crate::telemetry) name it.
    #[must_use]
    pub fn database(mut self, system: &'static str) -> Self {
        self.database.system = Some(system);
        self
    }

    /// The database has one server, with this address: a host, or the path of a socket. [Spans](crate::telemetry) name it.
    #[must_use]
    pub fn server(mut self, address: impl Into<String>, port: impl Into<Option<u16>>) -> Self {
        self.database.address = Some(address.into());
        self.database.port = port.into();
        self
    }

    /// The store lacks `feature`; `reason` is for a developer: why, and the alternative.
    #[must_use]
    pub fn without(mut self, feature: Feature, reason: &'static str) -> Self {
        self.features.retain(|other| !is_same(*other, feature));
        if feature == Feature::Inspection {
            self.inspector = None;
        }
        self.reasons.push(Unsupported::new(feature, reason));
        self
    }

    /// Whether the store has `feature`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`], with the reason.
    pub fn check(&self, feature: Feature) -> Result<(), Unsupported> {
        let has = match feature {
            // `LockStore::partition` decides for each key, and `Inspect` for lists.
            Feature::Key | Feature::Listing | Feature::Processes => true,
            Feature::Inspection => self.inspector.is_some(),
            _ => self.features.iter().any(|other| is_same(*other, feature)),
        };
        match has {
            true => Ok(()),
            false => Err(self.missing(feature)),
        }
    }

    /// The reason for a missing feature.
    #[cold]
    fn missing(&self, feature: Feature) -> Unsupported {
        let mut reasons = self.reasons.iter();
        let reason = reasons.find(|reason| is_same(reason.feature(), feature));
        reason.copied().unwrap_or_else(|| feature.into())
    }

    /// Waits for the work that continues after an answer. Cancelling the wait does not cancel the work.
    pub async fn ended(&self) {
        if let Some(ended) = &self.on_shutdown {
            ended().await;
        }
    }

    /// The database of the store, for traces.
    pub(crate) fn for_traces(&self) -> &Database {
        &self.database
    }

    /// The inspector of the store.
    pub(crate) fn inspector(&self) -> Result<&Arc<dyn DynInspect>, Unsupported> {
        let inspector = self.inspector.as_ref();
        inspector.ok_or_else(|| self.missing(Feature::Inspection))
    }

    /// The store's own runtime for renewals, if it has one.
    pub fn runtime(&self) -> Option<Handle> {
        self.renewal_runtime.as_ref().and_then(|runtime| runtime())
    }
}

/// Whether they are one feature: a mode of permits is, whatever its limit.
fn is_same(one: Feature, other: Feature) -> bool {
    match (one, other) {
        (Feature::Mode(one), Feature::Mode(other)) => one.is_like(other),
        _ => one == other,
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capabilities")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}
