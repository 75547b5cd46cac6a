//! What a store can do.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{DynInspect, Inspect, inspector};
use crate::error::{Feature, Unsupported};
use crate::lock::LockMode;

/// The end of what a store does in the background.
type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a store can do. The value does not change while the store lives: a client asks for it once.
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
    modes: Vec<LockMode>,
    fencing: bool,
    records: bool,
    renewal_runtime: Option<Arc<dyn Fn() -> Option<Handle> + Send + Sync>>,
    goes_on: Option<Arc<dyn Fn() -> End + Send + Sync>>,
    inspector: Option<Arc<dyn DynInspect>>,
    /// Why some features are missing, where the store has more to say than that.
    reasons: Vec<Unsupported>,
}

impl Capabilities {
    /// A store of locks in these modes, without fencing tokens and records.
    pub fn new(modes: impl IntoIterator<Item = LockMode>) -> Self {
        Self {
            modes: modes.into_iter().collect(),
            fencing: false,
            records: false,
            renewal_runtime: None,
            goes_on: None,
            inspector: None,
            reasons: Vec::new(),
        }
    }

    /// A store that can do everything.
    pub fn all() -> Self {
        use LockMode::{Fair, Read, Reentrant, Write};
        Self::new([Reentrant, Fair, Read, Write])
            .fencing()
            .records()
    }

    /// It issues fencing tokens.
    #[must_use]
    pub fn fencing(mut self) -> Self {
        self.fencing = true;
        self
    }

    /// It keeps records.
    #[must_use]
    pub fn records(mut self) -> Self {
        self.records = true;
        self
    }

    /// It has a runtime of its own for renewals. Without one, holds are renewed on the runtime of their callers.
    ///
    /// A client calls `runtime` when it first has something to renew. [`renew`](super::LockStore::renew) is then called on
    /// that runtime, even while all workers of the callers' runtime are busy, and must not need those to answer. The
    /// runtime must live, and be driven, for as long as the store does.
    #[must_use]
    pub fn renewal_runtime(
        mut self,
        runtime: impl Fn() -> Option<Handle> + Send + Sync + 'static,
    ) -> Self {
        self.renewal_runtime = Some(Arc::new(runtime));
        self
    }

    /// It goes on with work after it has answered. A client that is shut down calls `ended` and waits for the future, so that
    /// the process may end then. The store bounds that time.
    #[must_use]
    pub fn goes_on<F>(mut self, ended: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.goes_on = Some(Arc::new(move || Box::pin(ended())));
        self
    }

    /// It can be looked into: `store` is a clone of it. [`LockClient::admin`](crate::LockClient::admin) is for stores that
    /// say so.
    #[must_use]
    pub fn inspect(mut self, store: impl Inspect) -> Self {
        self.inspector = Some(inspector(store));
        self
    }

    /// It lacks `feature`; `reason` says to a developer why, and what to do instead.
    #[must_use]
    pub fn without(mut self, feature: Feature, reason: &'static str) -> Self {
        match feature {
            Feature::Mode(mode) => self.modes.retain(|other| *other != mode),
            Feature::Fencing => self.fencing = false,
            Feature::Records => self.records = false,
            // `LockStore::partition` says it of each key, and `Inspect` of lists.
            Feature::Key | Feature::Listing => {}
            Feature::Inspection => self.inspector = None,
        }
        self.reasons.push(Unsupported::new(feature, reason));
        self
    }

    /// Whether the store has `feature`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`] says why not.
    pub fn check(&self, feature: Feature) -> Result<(), Unsupported> {
        let has = match feature {
            Feature::Mode(mode) => self.modes.contains(&mode),
            Feature::Fencing => self.fencing,
            Feature::Records => self.records,
            Feature::Key | Feature::Listing => true,
            Feature::Inspection => self.inspector.is_some(),
        };
        if has {
            return Ok(());
        }
        let mut reasons = self.reasons.iter();
        let reason = reasons.find(|reason| reason.feature() == feature);
        Err(reason.copied().unwrap_or_else(|| feature.into()))
    }

    /// Waits for the work that goes on after an answer. Cancelling the wait does not cancel the work.
    pub async fn ended(&self) {
        if let Some(ended) = &self.goes_on {
            ended().await;
        }
    }

    /// What looks into the store.
    pub(crate) fn inspector(&self) -> Result<Arc<dyn DynInspect>, Unsupported> {
        self.check(Feature::Inspection)?;
        self.inspector
            .clone()
            .ok_or_else(|| Feature::Inspection.into())
    }

    /// The runtime that renews holds, if the store has one of its own.
    pub fn runtime(&self) -> Option<Handle> {
        self.renewal_runtime.as_ref().and_then(|runtime| runtime())
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capabilities")
            .field("modes", &self.modes)
            .field("fencing", &self.fencing)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}
