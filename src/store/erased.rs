//! A store without its type.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::ext::{misfit, wrong_size};
use super::memory::MemoryStore;
use super::{
    Attempt, Capabilities, Feature, Grant, HoldStatus, LockStore, Record, Released, Renewal, Reply,
    SeveralOutcome, Unsupported, Wakeups, Want, check_record, grouped,
};
use crate::audit::Audit;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, LockKey};
use crate::sync::panic_text;

/// An answer that will come. It owns its question, so that it can continue after its caller is cancelled.
pub(crate) type Answer<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Declares each question to a store without its type: what it asks `$store`, and what it makes of the answer.
macro_rules! questions {
    ($(fn $method:ident($store:ident $(, $argument:ident: $type:ty)*) -> $answer:ty $asked:block)*) => {
        /// [`LockStore`] without its type, with futures that own their questions.
        trait DynStore: Send + Sync {
            $(fn $method(self: Arc<Self>, $($argument: $type),*) -> Answer<$answer>;)*
            fn acquire(self: Arc<Self>, attempt: Attempt) -> Answer<Reply>;
            fn release(self: Arc<Self>, hold: Hold, record: Option<Record>) -> Answer<Released>;
            fn partition(&self, key: &LockKey) -> Result<u16, Unsupported>;
        }

        impl<S: LockStore> DynStore for Erased<S> {
            $(fn $method(self: Arc<Self>, $($argument: $type),*) -> Answer<$answer> {
                let asked = async move {
                    let $store = &self.0;
                    $asked
                };
                answer(asked)
            })*

            fn acquire(self: Arc<Self>, attempt: Attempt) -> Answer<Reply> {
                answer(async move { Ok(self.0.acquire(&attempt).await?.into()) })
            }

            fn release(self: Arc<Self>, hold: Hold, record: Option<Record>) -> Answer<Released> {
                answer(async move { self.0.release(&hold, record.as_ref()).await })
            }

            fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
                self.0.partition(key)
            }
        }

        impl Store {
            $(pub(crate) fn $method(&self, $($argument: $type),*) -> Asked<$answer> {
                match &self.kind {
                    Kind::Memory($store) => at_once(async { $asked }),
                    Kind::Other(store) => Asked::Later(store.clone().$method($($argument),*)),
                }
            })*
        }
    };
}

questions! {
    fn acquire_several(store, attempts: Vec<Attempt>, want: Want) -> Reply {
        let outcome = store.acquire_several(&attempts, want).await?;
        of_attempts(outcome, attempts.len(), want).map(Reply::from)
    }

    fn renew(store, renewals: Vec<Renewal>) -> Vec<HoldStatus> {
        sized(renewals.len(), store.renew(&renewals).await)
    }

    fn withdraw(store, attempt: Attempt, unanswered: bool) -> () {
        store.withdraw(&attempt, unanswered).await
    }

    fn subscribe(store, attempt: Attempt) -> Wakeups {
        store.subscribe(&attempt).await
    }

    fn record(store, key: LockKey) -> Option<Bytes> {
        store.record(&key).await
    }

    fn audit(store) -> Audit {
        store.audit().await
    }
}

struct Erased<S>(S);

/// The answer to a question. A store that panics has not answered.
fn answer<T>(asked: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Answer<T> {
    Box::pin(AssertUnwindSafe(asked).catch_unwind().map(|answer| {
        let panicked = |text: &str| misfit(format!("the store panicked: {text}"));
        answer.unwrap_or_else(|panic| Err(panicked(panic_text(&*panic))))
    }))
}

/// The answer about so many holds.
fn sized<T>(asked: usize, answer: Result<Vec<T>, StoreError>) -> Result<Vec<T>, StoreError> {
    match answer {
        Ok(answers) if answers.len() != asked => Err(wrong_size(asked, answers.len())),
        answer => answer,
    }
}

/// The answer about so many attempts.
fn of_attempts(
    outcome: SeveralOutcome,
    attempts: usize,
    want: Want,
) -> Result<SeveralOutcome, StoreError> {
    let is_made = match (&outcome, want) {
        (SeveralOutcome::Granted(grants), Want::All) => {
            let indices = grants.iter().map(|grant| grant.index);
            indices.eq(0..attempts)
        }
        (SeveralOutcome::Granted(grants), Want::Any) => {
            matches!(grants[..], [Grant { index, .. }] if index < attempts)
        }
        (SeveralOutcome::Refused { index, .. }, _) => index.is_none_or(|index| index < attempts),
    };
    match is_made {
        true => Ok(outcome),
        false => Err(misfit("the store answers about other attempts")),
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

    pub(crate) fn acquire(&self, attempt: &Attempt) -> Asked<Reply> {
        match &self.kind {
            Kind::Memory(store) => at_once(async { Ok(store.acquire(attempt).await?.into()) }),
            Kind::Other(store) => Asked::Later(store.clone().acquire(attempt.clone())),
        }
    }

    /// Whether a store that answers at once carries a hold.
    pub(crate) fn holds_now(&self, hold: &Hold) -> Option<HoldStatus> {
        let Kind::Memory(store) = &self.kind else {
            return None;
        };
        let check = [Renewal::check(hold.clone())];
        let statuses = store.renew(&check).now_or_never()?.ok()?;
        statuses.first().copied()
    }

    pub(crate) fn release(&self, hold: &Hold, record: Option<Record>) -> Asked<Released> {
        if let Some(record) = &record {
            let kept = self.capabilities.check(Feature::Records);
            let kept = kept.map_err(|missing| StoreError::new(StoreErrorKind::Refused, missing));
            if let Err(refused) = kept.and_then(|()| check_record(hold, Some(record))) {
                return Asked::Now(Err(refused));
            }
        }
        match &self.kind {
            Kind::Memory(store) => Asked::Now(Ok(store.release_now(hold, record.as_ref()))),
            Kind::Other(store) => Asked::Later(store.clone().release(hold.clone(), record)),
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
