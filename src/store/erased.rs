//! A store without its type.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::future::ready;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;

use super::answer_pool::AnswerPool;
use super::ext::{self, misfit, wrong_size};
use super::memory::MemoryStore;
#[cfg(feature = "redis")]
use super::redis::RedisStore;
use super::{
    Answer, Attempt, Capabilities, Feature, HoldStatus, LockStore, Outcome, Release, Released,
    Renewal, SeveralOutcome, StoreAtOnce, Unsupported, Wakeups, Want, check_record, grouped,
};
use crate::audit::Audit;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;

/// [`LockStore`] without its type: futures that own their data, so that they can continue after their caller is
/// cancelled.
///
/// The rules for the store's author are checked here, once: an answer of the wrong size is
/// [`Unanswered`](StoreErrorKind::Unanswered), and records are refused if the store does not keep records.
pub(crate) trait DynStore: Send + Sync {
    fn acquire(&self, attempt: Attempt) -> Answer<Outcome, Attempt>;
    fn acquire_several(
        self: Arc<Self>,
        attempts: Arc<[Attempt]>,
        want: Want,
    ) -> Answer<SeveralOutcome>;
    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Answer<Vec<HoldStatus>>;
    fn release(self: Arc<Self>, releases: Vec<Release>) -> Answer<Vec<Released>>;
    fn release_alone(&self, release: Release) -> Answer<Released, Release>;
    fn withdraw(self: Arc<Self>, attempt: Attempt, unanswered: bool) -> Answer<()>;
    fn subscribe(self: Arc<Self>, attempt: Attempt) -> Answer<Wakeups>;
    fn record(self: Arc<Self>, key: LockKey) -> Answer<Option<Bytes>>;
    fn audit(self: Arc<Self>) -> Answer<Audit>;
    /// The store itself, if each question takes effect, and is answered, when it is asked. No future is awaited then.
    fn at_once(&self) -> Option<&dyn StoreAtOnce>;
    fn capabilities(&self) -> &Capabilities;
    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported>;
}

impl dyn DynStore {
    /// Whether each question is answered when it is asked.
    pub(crate) fn answers_at_once(&self) -> bool {
        self.at_once().is_some()
    }

    /// Groups items by the partitions of their keys.
    pub(crate) fn by_partition<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> &LockKey,
    ) -> BTreeMap<u16, Vec<T>> {
        grouped(items, |item| self.partition_of(key(item)))
    }

    /// The partition of a key that the store accepts.
    pub(crate) fn partition_of(&self, key: &LockKey) -> u16 {
        self.partition(key).unwrap_or_default()
    }
}

/// A store and its capabilities, which are read once.
struct Erased<S> {
    store: Arc<S>,
    capabilities: Capabilities,
    acquires: Arc<AnswerPool<Attempt, Outcome>>,
    releases: Arc<AnswerPool<Release, Released>>,
}

/// Erases the type of a store.
pub(crate) fn erase<S: LockStore>(store: S) -> Arc<dyn DynStore> {
    let (capabilities, store) = (store.capabilities(), Arc::new(store));
    let asked = store.clone();
    let acquires = AnswerPool::new(move |attempt| {
        let store = asked.clone();
        async move { store.acquire(&attempt).await }
    });
    let asked = store.clone();
    let releases = AnswerPool::new(move |release| {
        let store = asked.clone();
        async move { release_alone(&*store, &release).await }
    });
    Arc::new(Erased {
        store,
        capabilities,
        acquires,
        releases,
    })
}

async fn release_alone<S: LockStore>(store: &S, release: &Release) -> Result<Released, StoreError> {
    // By its type, as `at_once` does.
    #[cfg(feature = "redis")]
    if let Some(store) = (store as &dyn Any).downcast_ref::<RedisStore>() {
        return store.release_alone(release).await;
    }
    ext::only(store.release(slice::from_ref(release)).await?)
}

impl<S: LockStore> Erased<S> {
    /// Asks the store at once, without a box, if it answers at the first poll.
    fn answer<T>(
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        match Self::answers_at_once() {
            true => Answer::at_once(question),
            false => Answer::later(question),
        }
    }

    /// A constant: the type is known when this is compiled.
    fn answers_at_once() -> bool {
        TypeId::of::<S>() == TypeId::of::<MemoryStore>()
    }

    fn check_records(&self, releases: &[Release]) -> Result<(), StoreError> {
        if releases.iter().any(|release| release.record.is_some()) {
            let kept = self.capabilities.check(Feature::Records);
            kept.map_err(|missing| StoreError::new(StoreErrorKind::Refused, missing))?;
        }
        let mut releases = releases.iter();
        releases.try_for_each(|Release { hold, record }| check_record(hold, record.as_ref()))
    }
}

impl<S: LockStore> DynStore for Erased<S> {
    fn acquire(&self, attempt: Attempt) -> Answer<Outcome, Attempt> {
        match Self::answers_at_once() {
            true => Answer::at_once(self.store.acquire(&attempt)),
            false => Answer::pooled(&self.acquires, attempt),
        }
    }

    fn acquire_several(
        self: Arc<Self>,
        attempts: Arc<[Attempt]>,
        want: Want,
    ) -> Answer<SeveralOutcome> {
        Self::answer(async move {
            let outcome = self.store.acquire_several(&attempts, want).await?;
            let is_made = match &outcome {
                SeveralOutcome::Granted(grants) => {
                    let expected = match want {
                        Want::All => attempts.len(),
                        Want::Any => 1,
                    };
                    sized(expected, grants.len())?;
                    let in_order = |(place, index): (usize, usize)| match want {
                        Want::All => place == index,
                        Want::Any => index < attempts.len(),
                    };
                    let indices = grants.iter().map(|grant| grant.index);
                    indices.enumerate().all(in_order)
                }
                SeveralOutcome::Refused { index, .. } => {
                    index.is_none_or(|index| index < attempts.len())
                }
            };
            match is_made {
                true => Ok(outcome),
                false => Err(misfit(
                    "the store answers about an attempt that was not made",
                )),
            }
        })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Answer<Vec<HoldStatus>> {
        Self::answer(async move {
            let statuses = self.store.renew(&renewals).await?;
            sized(renewals.len(), statuses.len())?;
            Ok(statuses)
        })
    }

    fn release(self: Arc<Self>, releases: Vec<Release>) -> Answer<Vec<Released>> {
        Self::answer(async move {
            self.check_records(&releases)?;
            let released = self.store.release(&releases).await?;
            sized(releases.len(), released.len())?;
            Ok(released)
        })
    }

    fn release_alone(&self, release: Release) -> Answer<Released, Release> {
        match self.check_records(slice::from_ref(&release)) {
            Err(refused) => Answer::at_once(ready(Err(refused))),
            Ok(()) if Self::answers_at_once() => {
                Answer::at_once(release_alone(&*self.store, &release))
            }
            Ok(()) => Answer::pooled(&self.releases, release),
        }
    }

    fn withdraw(self: Arc<Self>, attempt: Attempt, unanswered: bool) -> Answer<()> {
        Self::answer(async move { self.store.withdraw(&attempt, unanswered).await })
    }

    fn subscribe(self: Arc<Self>, attempt: Attempt) -> Answer<Wakeups> {
        Self::answer(async move { self.store.subscribe(&attempt).await })
    }

    fn record(self: Arc<Self>, key: LockKey) -> Answer<Option<Bytes>> {
        Self::answer(async move { self.store.record(&key).await })
    }

    fn audit(self: Arc<Self>) -> Answer<Audit> {
        Self::answer(async move { self.store.audit().await })
    }

    fn at_once(&self) -> Option<&dyn StoreAtOnce> {
        // By its type, and not by a capability: a store around it forwards its capabilities.
        let memory = (&*self.store as &dyn Any).downcast_ref::<MemoryStore>();
        memory.map(|store| store as &dyn StoreAtOnce)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        self.store.partition(key)
    }
}

fn sized(expected: usize, found: usize) -> Result<(), StoreError> {
    match expected == found {
        true => Ok(()),
        false => Err(wrong_size(expected, found)),
    }
}
