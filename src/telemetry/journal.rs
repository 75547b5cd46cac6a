//! The history for a console: losses, refusals, durations, contended keys, and requests that the store has refused and that
//! wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Labels, Route};
use crate::error::LockError;
use crate::lock::{Hold, LockKey, LockMode};
use crate::sync::Mutex;

mod contended;
mod durations;
mod events;

pub(crate) use contended::{WINDOW, Waits};
pub(crate) use durations::{BOUNDS, Durations, Histogram, quantile};
pub(crate) use events::{Event, EventCause, Events};

use contended::ContendedKeys;
use durations::AllDurations;

/// The journal of one client. It is closed, and costs one load for each request, until a console [opens](Self::open) it. Its
/// memory is bounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Arc<OnceLock<Arc<JournalData>>>);

/// The content of an open journal. Each mutex protects its own value; none is taken under another one.
#[derive(Debug)]
struct JournalData {
    events: Mutex<Events>,
    durations: AllDurations,
    contended: Mutex<ContendedKeys>,
    /// By numbers, of which none is used twice at a time.
    waiters: Mutex<BTreeMap<u64, StoreWaiter>>,
}

/// A request that the store has refused, and one of the keys that it waits for.
#[derive(Debug, Clone)]
pub(crate) struct StoreWaiter {
    pub(crate) key: LockKey,
    pub(crate) mode: LockMode,
    pub(crate) route: Route,
    /// When the request began to wait.
    pub(crate) since: Instant,
}

impl Journal {
    /// Opens the journal: it records from now on.
    pub(crate) fn open(&self) {
        self.0.get_or_init(|| {
            Arc::new(JournalData {
                events: Mutex::new(Events::default()),
                durations: AllDurations::default(),
                contended: Mutex::new(ContendedKeys::new(Instant::now())),
                waiters: Mutex::default(),
            })
        });
    }

    fn data(&self) -> Option<&Arc<JournalData>> {
        self.0.get()
    }

    /// Follows a request for `key`, the first of several.
    pub(crate) fn follow(&self, key: Option<&LockKey>) -> Followed {
        let open = self.data().zip(key);
        Followed(open.map(|(data, key)| (data.clone(), key.clone())))
    }

    /// Records a lost hold.
    pub(crate) fn lost(&self, route: &Route, hold: &Hold, reason: &'static str) {
        if let Some(data) = self.data() {
            let (mode, cause) = (Some(hold.mode.as_str()), EventCause::Lost(reason));
            data.events.lock().add(&hold.key, mode, route, cause);
        }
    }

    /// Records a lock that a user broke.
    pub(crate) fn broken(&self, key: &LockKey, by: String) {
        if let Some(data) = self.data() {
            let (route, cause) = (Route::default(), EventCause::Broken(by));
            data.events.lock().add(key, None, &route, cause);
        }
    }

    /// Follows a request for `key`, the first of several, that does not get its lock at once.
    pub(crate) fn contends(&self, key: &LockKey, since: Instant) -> Contention {
        let open = self.data();
        Contention {
            open: open.map(|data| (data.clone(), key.clone(), since)),
            listed: SmallVec::new(),
        }
    }
}

/// The data for a console. A closed journal is empty.
impl Journal {
    pub(crate) fn events(&self) -> Events {
        self.read(|data| data.events.lock().clone())
    }

    /// Since the journal was opened, by route and mode.
    pub(crate) fn durations(&self) -> Vec<(Labels, Arc<Durations>)> {
        self.read(|data| data.durations.all())
    }

    /// The most contended keys of the last minutes, the hottest first.
    pub(crate) fn contended(&self) -> Vec<(LockKey, Waits)> {
        self.read(|data| data.contended.lock().all(Instant::now()))
    }

    /// Every request that the store has refused and that waits for it now.
    pub(crate) fn store_waiters(&self) -> Vec<StoreWaiter> {
        self.read(|data| data.waiters.lock().values().cloned().collect())
    }

    fn read<T: Default>(&self, read: impl FnOnce(&JournalData) -> T) -> T {
        self.data().map(|data| read(data)).unwrap_or_default()
    }
}

/// A request that the journal follows, from its first poll until its guard ends. Empty while the journal is closed.
#[derive(Debug, Default)]
pub(crate) struct Followed(Option<(Arc<JournalData>, LockKey)>);

impl Followed {
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn waited(&self, labels: &Labels, since: Instant) {
        if let Some((data, _)) = &self.0 {
            data.durations.of(labels).waits.record(since.elapsed());
        }
    }

    pub(super) fn held(&self, labels: &Labels, since: Instant) {
        if let Some((data, _)) = &self.0 {
            data.durations.of(labels).holds.record(since.elapsed());
        }
    }

    pub(super) fn refused(&self, Labels(route, mode): &Labels, error: &LockError, since: Instant) {
        if let Some((data, key)) = &self.0 {
            let (error, waited) = (error.clone(), since.elapsed());
            let cause = EventCause::Refused { error, waited };
            data.events.lock().add(key, Some(*mode), route, cause);
        }
    }
}

/// A request that does not get its lock at once. When it is dropped, at the end of its wait, it is counted for its key and is
/// not listed any more.
#[derive(Debug)]
pub(crate) struct Contention {
    /// `None` while the journal is closed.
    open: Option<(Arc<JournalData>, LockKey, Instant)>,
    /// The numbers under which it is listed.
    listed: SmallVec<[u64; 1]>,
}

impl Contention {
    /// Lists the request: the store has refused it, for these keys. It is listed once.
    pub(crate) fn list<'a>(
        &mut self,
        keys: impl Iterator<Item = (&'a LockKey, LockMode)>,
        route: &Route,
    ) {
        if let Some((data, _, since)) = &self.open
            && self.listed.is_empty()
        {
            let mut waiters = data.waiters.lock();
            for (key, mode) in keys {
                let number = waiters.last_key_value().map_or(0, |(last, _)| last + 1);
                let waiter = StoreWaiter {
                    key: key.clone(),
                    mode,
                    route: route.clone(),
                    since: *since,
                };
                waiters.insert(number, waiter);
                self.listed.push(number);
            }
        }
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        let Some((data, key, since)) = &self.open else {
            return;
        };
        if !self.listed.is_empty() {
            let mut waiters = data.waiters.lock();
            for number in &self.listed {
                waiters.remove(number);
            }
        }
        let now = Instant::now();
        let waited = now.saturating_duration_since(*since);
        data.contended.lock().add(key, waited, now);
    }
}
