//! A request for locks, and its settings.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::slice;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use super::LockClient;
use super::all::AllOf;
use super::wait::Wait;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::limits::{self, FOR_EVER};
use crate::lock::{Lease, LockKey, LockMode, Owner};
use crate::queue::Terms;
use crate::telemetry::{Route, Waiting};

/// A lock that is asked for. Await it, or call [`LockRequest::acquire`].
///
/// Defaults: mode `Reentrant`, lease renewed at 30 s, wait 30 s, an owner of its own, no fencing token, no longest hold.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct LockRequest {
    client: LockClient,
    targets: Targets,
    terms: Terms,
    wait: Duration,
}

#[derive(Debug, Clone)]
enum Targets {
    One(LockKey),
    All(Vec<Target>),
    Any(Vec<LockKey>),
}

impl Targets {
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::All(targets) => targets.len(),
            Self::Any(keys) => keys.len(),
        }
    }
}

/// A key of [`LockClient::lock_all`], and the mode to take it in if it is another than the request's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    key: LockKey,
    mode: Option<LockMode>,
}

impl<K: Into<LockKey>> From<K> for Target {
    fn from(key: K) -> Self {
        Self {
            key: key.into(),
            mode: None,
        }
    }
}

impl<K: Into<LockKey>> From<(K, LockMode)> for Target {
    fn from((key, mode): (K, LockMode)) -> Self {
        Self {
            key: key.into(),
            mode: Some(mode),
        }
    }
}

impl LockRequest {
    pub(super) fn one(client: LockClient, key: LockKey) -> Self {
        Self::new(client, Targets::One(key))
    }

    pub(super) fn all(client: LockClient, targets: Vec<Target>) -> Self {
        Self::new(client, Targets::All(targets))
    }

    pub(super) fn any(client: LockClient, mut keys: Vec<LockKey>) -> Self {
        keys.sort();
        keys.dedup();
        Self::new(client, Targets::Any(keys))
    }

    fn new(client: LockClient, targets: Targets) -> Self {
        Self {
            client,
            targets,
            terms: Terms {
                mode: LockMode::Reentrant,
                owner: None,
                lease: Lease::default(),
                max_hold: None,
                fenced: false,
                max_waiters: Some(1024),
                route: Route::default(),
            },
            wait: Duration::from_secs(30),
        }
    }

    /// How the key is held (default [`LockMode::Reentrant`]).
    pub fn mode(mut self, mode: LockMode) -> Self {
        self.terms.mode = mode;
        self
    }

    /// How long to wait, for everything together: the queue in the process, the store, the network. Zero tries once and
    /// leaves no trace; that try has at most 2 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(FOR_EVER);
        self
    }

    /// How long the hold lives without renewal, and whether it is renewed.
    pub fn lease(mut self, lease: Lease) -> Self {
        self.terms.lease = limits::bounded(lease);
        self
    }

    /// When renewal ends, guard or not: the hold lapses then, and the guard finds it lost.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.terms.max_hold = Some(max_hold.min(FOR_EVER));
        self
    }

    /// Who asks. An owner joins what it holds already, without asking the store.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.terms.owner = Some(owner.clone());
        self
    }

    /// How many callers of this process may wait for the same key at a time (default 1024); one more fails with
    /// [`LockError::Overloaded`].
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.terms.max_waiters = Some(max_waiters);
        self
    }

    /// Asks for a fencing token with the grant.
    pub fn fenced(mut self) -> Self {
        self.terms.fenced = true;
        self
    }

    /// Where its measurements belong.
    pub(crate) fn route(mut self, route: Route) -> Self {
        self.terms.route = route;
        self
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// * [`LockError::Busy`] when the wait is over; [`LockError::Overloaded`] when too many wait already.
    /// * [`LockError::Unavailable`] when the store cannot be asked or does not answer within the wait.
    /// * [`LockError::Upgrade`] when the owner holds the key for reading and asks to write; [`LockError::Lost`] when the
    ///   owner would join a hold that it has lost.
    /// * [`LockError::Conflict`] when the key holds something else; [`LockError::Unsupported`] and [`LockError::Invalid`]
    ///   when the request cannot be served as it is; [`LockError::Shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: what the store may grant or has granted meanwhile is taken
    /// back in the background, at once when the store has answered.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        self.check()?;
        // A lock in memory that is free needs no waiting: a loop over it must not keep the executor from its other tasks.
        tokio::task::coop::consume_budget().await;
        let now = Instant::now();
        let waiting = Waiting::begin(&self.terms.route, self.mode_name(), now, || self.keys());
        let wait = Wait::new(self.wait, now);
        let terms = match self.wait.is_zero() {
            true => self.terms.impatient(),
            false => self.terms,
        };
        let client = &self.client;
        // Made before the work, so that it is dropped after it.
        let mut door = client.enter();
        // Pinned here, so that what is made around it moves a pointer only.
        let work = pin!(async {
            match self.targets {
                Targets::One(key) => {
                    let share = client
                        .take(slice::from_ref(&key), &terms, wait, None, now)
                        .await?;
                    Ok(LockGuard::one(share))
                }
                Targets::All(targets) => {
                    let keys = in_order(targets, terms.mode);
                    let all = AllOf {
                        keys: &keys,
                        terms: &terms,
                        wait,
                    };
                    let shares = Box::pin(client.take_all(all)).await?;
                    Ok(LockGuard::all(shares).expect("there is at least one key"))
                }
                Targets::Any(mut keys) => {
                    // Every request begins somewhere else, so that the keys are used alike.
                    fastrand::shuffle(&mut keys);
                    let share = client.take(&keys, &terms, wait, None, now).await?;
                    Ok(LockGuard::one(share))
                }
            }
        });
        let taken = door.unless_closed(work).instrument(waiting.span()).await;
        match taken {
            Ok(guard) => Ok(guard.observed(waiting)),
            Err(error) => {
                waiting.refused(&error);
                Err(error)
            }
        }
    }

    fn keys(&self) -> Vec<&LockKey> {
        match &self.targets {
            Targets::One(key) => vec![key],
            Targets::All(targets) => targets.iter().map(|target| &target.key).collect(),
            Targets::Any(keys) => keys.iter().collect(),
        }
    }

    /// The mode, for labels and logs.
    fn mode_name(&self) -> &'static str {
        let default = self.terms.mode;
        let Targets::All(targets) = &self.targets else {
            return default.as_str();
        };
        let mut modes = targets.iter().map(|target| target.mode.unwrap_or(default));
        let first = modes.next().unwrap_or(default);
        match modes.all(|mode| mode == first) {
            true => first.as_str(),
            false => "mixed",
        }
    }

    fn check(&self) -> Result<(), LockError> {
        limits::check(self.terms.lease, self.terms.max_hold).map_err(LockError::Invalid)?;
        if self.targets.len() > self.client.inner.max_keys_per_request {
            return Err(LockError::Invalid(
                "the request names too many keys: name fewer, or see `max_keys_per_request`",
            ));
        }
        let mode = self.terms.mode;
        match &self.targets {
            Targets::All(targets) if !targets.is_empty() => targets
                .iter()
                .try_for_each(|target| self.check_one(&target.key, target.mode.unwrap_or(mode))),
            Targets::Any(keys) if !keys.is_empty() => {
                keys.iter().try_for_each(|key| self.check_one(key, mode))
            }
            Targets::One(key) => self.check_one(key, mode),
            Targets::All(_) | Targets::Any(_) => Err(LockError::Invalid(
                "there is no key to lock: name at least one",
            )),
        }
    }

    fn check_one(&self, key: &LockKey, mode: LockMode) -> Result<(), LockError> {
        if self.terms.fenced && !mode.is_exclusive() {
            return Err(LockError::Invalid(
                "a read hold has no fencing token: ask for one with an exclusive mode",
            ));
        }
        let supported = self.client.supports(mode, self.terms.fenced);
        supported
            .and_then(|()| self.client.accepts(key))
            .map_err(LockError::Unsupported)
    }
}

/// Sorted, each key once; of two modes of one key the excluding one.
fn in_order(targets: Vec<Target>, default: LockMode) -> Vec<(LockKey, LockMode)> {
    let mut targets: Vec<_> = targets
        .into_iter()
        .map(|target| (target.key, target.mode.unwrap_or(default)))
        .collect();
    targets.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.is_exclusive().cmp(&x.is_exclusive())));
    targets.dedup_by(|later, earlier| later.0 == earlier.0);
    targets
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
