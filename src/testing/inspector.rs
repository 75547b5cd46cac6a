//! Inspection of a store with injected faults.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::FaultyStore;
use crate::audit::Audit;
use crate::lock::LockKey;
use crate::store::{
    DynInspect, InspectAnswer, Inspection, ListQuery, LockEntry, LockStore, Page, ProcessInfo,
    RecordEntry,
};

/// The inspector of the wrapped store: each question has the faults of a call on the connection of `store`.
pub(super) struct FaultyInspector<S> {
    pub(super) store: FaultyStore<S>,
    pub(super) inner: Arc<dyn DynInspect>,
}

/// A question to an inspector about this.
type Question<A, T> = for<'q> fn(&'q dyn DynInspect, &'q A) -> InspectAnswer<'q, T>;

impl<S: LockStore> FaultyInspector<S> {
    fn ask<A, T>(&self, of: A, ask: Question<A, T>) -> InspectAnswer<'_, T>
    where
        A: Clone + Send + Sync + 'static,
        T: Send + 'static,
    {
        Box::pin(async move {
            let ask = |_, of: A| {
                let inner = self.inner.clone();
                async move { ask(&*inner, &of).await }
            };
            self.store.call(&of, ask).await
        })
    }
}

impl<S: LockStore> DynInspect for FaultyInspector<S> {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, Inspection> {
        self.ask(key.clone(), |inner, key| inner.inspect(key))
    }

    fn force_unlock<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, bool> {
        self.ask(key.clone(), |inner, key| inner.force_unlock(key))
    }

    fn set_permits<'a>(
        &'a self,
        key: &'a LockKey,
        limit: Option<NonZeroU32>,
    ) -> InspectAnswer<'a, ()> {
        self.ask((key.clone(), limit), |inner, (key, limit)| {
            inner.set_permits(key, *limit)
        })
    }

    fn list_locks<'a>(&'a self, query: &'a ListQuery) -> InspectAnswer<'a, Page<LockEntry>> {
        self.ask(query.clone(), |inner, query| inner.list_locks(query))
    }

    fn list_records<'a>(&'a self, query: &'a ListQuery) -> InspectAnswer<'a, Page<RecordEntry>> {
        self.ask(query.clone(), |inner, query| inner.list_records(query))
    }

    fn record<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, Option<Bytes>> {
        self.ask(key.clone(), |inner, key| inner.record(key))
    }

    fn forget_record<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, bool> {
        self.ask(key.clone(), |inner, key| inner.forget_record(key))
    }

    fn announce<'a>(
        &'a self,
        client: Uuid,
        process: &'a ProcessInfo,
        lifetime: Duration,
    ) -> InspectAnswer<'a, ()> {
        self.ask(
            (client, process.clone(), lifetime),
            |inner, (client, process, lifetime)| inner.announce(*client, process, *lifetime),
        )
    }

    fn processes<'a>(&'a self, clients: &'a [Uuid]) -> InspectAnswer<'a, Vec<Option<ProcessInfo>>> {
        self.ask(clients.to_vec(), |inner, clients| inner.processes(clients))
    }

    fn audit<'a>(&'a self) -> InspectAnswer<'a, Audit> {
        self.ask((), |inner, ()| inner.audit())
    }
}
