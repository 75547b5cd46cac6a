//! A store without its type.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::ext::{misfit, only, wrong_size};
use super::memory::MemoryStore;
use super::{
    Attempt, Capabilities, Feature, HoldStatus, LockStore, Outcome, Release, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want, check_record, grouped,
};
use crate::audit::Audit;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, LockKey};
use crate::sync::panic_text;

/// An answer that will come. It owns its question, so that it can continue after its caller is cancelled.
pub(crate) type Answer<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Declares each question to a store without its type, and forwards it. A store that panics has not answered.
macro_rules! erased {
    ($(fn $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// [`LockStore`] without its type, with futures that own their questions.
        trait DynStore: Send + Sync {
            $(fn $method(self: Arc<Self>, $($argument: $type),*) -> Answer<$answer>;)*
            fn partition(&self, key: &LockKey) -> Result<u16, Unsupported>;
        }

        impl<S: LockStore> DynStore for Erased<S> {
            $(fn $method(self: Arc<Self>, $($argument: $type),*) -> Answer<$answer> {
                Box::pin(async move {
                    let answer = AssertUnwindSafe(Self::$method(&self, $(&$argument),*)).catch_unwind().await;
                    answer.unwrap_or_else(|panic| Err(misfit(format!("the store panicked: {}", panic_text(&*panic)))))
                })
            })*

            fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
                self.0.partition(key)
            }
        }
    };
}

erased! {
    fn acquire(attempt: Attempt) -> Outcome;
    fn acquire_several(attempts: Vec<Attempt>, want: Want) -> SeveralOutcome;
    fn renew(renewals: Vec<Renewal>) -> Vec<HoldStatus>;
    fn release(releases: Vec<Release>) -> Vec<Released>;
    fn release_one(release: Release) -> Released;
    fn withdraw(attempt: Attempt, unanswered: bool) -> ();
    fn subscribe(attempt: Attempt) -> Wakeups;
    fn record(key: LockKey) -> Option<Bytes>;
    fn audit() -> Audit;
}

/// A store whose answers are checked: one of the wrong size is [`Unanswered`](StoreErrorKind::Unanswered).
struct Erased<S>(S);

impl<S: LockStore> Erased<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.0.acquire(attempt).await
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: &Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let outcome = self.0.acquire_several(attempts, *want).await?;
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
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let statuses = self.0.renew(renewals).await?;
        sized(renewals.len(), statuses.len())?;
        Ok(statuses)
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        let released = self.0.release(releases).await?;
        sized(releases.len(), released.len())?;
        Ok(released)
    }

    async fn release_one(&self, release: &Release) -> Result<Released, StoreError> {
        only(self.0.release(slice::from_ref(release)).await?)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: &bool) -> Result<(), StoreError> {
        self.0.withdraw(attempt, *unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.0.subscribe(attempt).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.0.record(key).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.0.audit().await
    }
}

/// The store of a client, with its capabilities, which are read once.
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    kind: Kind,
}

/// The only place that asks which store a client has. The memory store answers when it is asked, so that its questions need neither
/// a box nor a task.
#[derive(Clone)]
enum Kind {
    Memory(MemoryStore),
    Other(Arc<dyn DynStore>),
}

impl Store {
    pub(crate) fn new<S: LockStore>(store: S) -> Self {
        let capabilities = store.capabilities();
        let memory = (&store as &dyn Any).downcast_ref::<MemoryStore>().cloned();
        let kind = match memory {
            Some(memory) => Kind::Memory(memory),
            None => Kind::Other(Arc::new(Erased(store))),
        };
        Self { capabilities, kind }
    }

    /// Whether each question takes effect, and is answered, when it is asked.
    pub(crate) fn answers_at_once(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    pub(crate) fn acquire(&self, attempt: &Attempt) -> Asked<Outcome> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.acquire(attempt)),
            Kind::Other(store) => Asked::Later(store.clone().acquire(attempt.clone())),
        }
    }

    pub(crate) fn acquire_several(
        &self,
        attempts: Vec<Attempt>,
        want: Want,
    ) -> Asked<SeveralOutcome> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.acquire_several(&attempts, want)),
            Kind::Other(store) => Asked::Later(store.clone().acquire_several(attempts, want)),
        }
    }

    pub(crate) fn renew(&self, renewals: Vec<Renewal>) -> Asked<Vec<HoldStatus>> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.renew(&renewals)),
            Kind::Other(store) => Asked::Later(store.clone().renew(renewals)),
        }
    }

    /// Whether a store that answers at once carries a hold.
    pub(crate) fn holds_now(&self, hold: &Hold) -> Option<HoldStatus> {
        let Kind::Memory(store) = &self.kind else {
            return None;
        };
        let check = [Renewal::check(hold.clone())];
        let Asked::Now(Ok(statuses)) = at_once(store.renew(&check)) else {
            return None;
        };
        statuses.first().copied()
    }

    pub(crate) fn release(&self, releases: Vec<Release>) -> Asked<Vec<Released>> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.release(&releases)),
            Kind::Other(store) => Asked::Later(store.clone().release(releases)),
        }
    }

    pub(crate) fn release_one(&self, release: Release) -> Asked<Released> {
        if let Some(record) = &release.record {
            let kept = self.capabilities.check(Feature::Records);
            let kept = kept.map_err(|missing| StoreError::new(StoreErrorKind::Refused, missing));
            if let Err(refused) = kept.and_then(|()| check_record(&release.hold, Some(record))) {
                return Asked::Now(Err(refused));
            }
        }
        match &self.kind {
            Kind::Memory(store) => {
                Asked::Now(store.release_now(&release.hold, release.record.as_ref()))
            }
            Kind::Other(store) => Asked::Later(store.clone().release_one(release)),
        }
    }

    pub(crate) fn withdraw(&self, attempt: Attempt, unanswered: bool) -> Asked<()> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.withdraw(&attempt, unanswered)),
            Kind::Other(store) => Asked::Later(store.clone().withdraw(attempt, unanswered)),
        }
    }

    pub(crate) fn subscribe(&self, attempt: Attempt) -> Asked<Wakeups> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.subscribe(&attempt)),
            Kind::Other(store) => Asked::Later(store.clone().subscribe(attempt)),
        }
    }

    pub(crate) fn record(&self, key: LockKey) -> Asked<Option<Bytes>> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.record(&key)),
            Kind::Other(store) => Asked::Later(store.clone().record(key)),
        }
    }

    pub(crate) fn audit(&self) -> Asked<Audit> {
        match &self.kind {
            Kind::Memory(store) => at_once(store.audit()),
            Kind::Other(store) => Asked::Later(store.clone().audit()),
        }
    }

    /// [`LockStore::partition`].
    pub(crate) fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        match &self.kind {
            Kind::Memory(_) => Ok(0),
            Kind::Other(store) => store.partition(key),
        }
    }

    /// The partition of a key that the store accepts.
    pub(crate) fn partition_of(&self, key: &LockKey) -> u16 {
        self.partition(key).unwrap_or_default()
    }

    /// Groups items by the partitions of their keys.
    pub(crate) fn by_partition<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> &LockKey,
    ) -> BTreeMap<u16, Vec<T>> {
        grouped(items, |item| self.partition_of(key(item)))
    }
}

/// A question that was asked: it is answered, or its answer comes.
pub(crate) enum Asked<T> {
    Now(Result<T, StoreError>),
    Later(Answer<T>),
}

impl<T> Asked<T> {
    /// Waits for the answer.
    ///
    /// # Cancel safety
    ///
    /// A question must be driven to its end: drop this only where something else does.
    pub(crate) async fn answer(self) -> Result<T, StoreError> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }
}

/// The answer of the memory store, whose futures are ready at their first poll.
fn at_once<T>(question: impl Future<Output = Result<T, StoreError>>) -> Asked<T> {
    let answer = question.now_or_never();
    Asked::Now(answer.expect("the memory store answers at once"))
}

fn sized(expected: usize, found: usize) -> Result<(), StoreError> {
    match expected == found {
        true => Ok(()),
        false => Err(wrong_size(expected, found)),
    }
}
