//! Inspection of a store with injected faults.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::FaultyStore;
use crate::audit::Audit;
use crate::error::StoreError;
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

impl<S: LockStore> FaultyInspector<S> {
    fn ask<'a, A, T, F>(
        &'a self,
        of: A,
        execute: impl Fn(Arc<dyn DynInspect>, A) -> F + Send + Sync + 'a,
    ) -> InspectAnswer<'a, T>
    where
        A: Clone + Send + Sync + 'a,
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        Box::pin(async move {
            let execute = |_, of| execute(self.inner.clone(), of);
            self.store.call(&of, execute).await
        })
    }
}

impl<S: LockStore> DynInspect for FaultyInspector<S> {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, Inspection> {
        self.ask(key.clone(), async |inner, key| inner.inspect(&key).await)
    }

    fn force_unlock<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, bool> {
        self.ask(key.clone(), async |inner, key| {
            inner.force_unlock(&key).await
        })
    }

    fn set_permits<'a>(
        &'a self,
        key: &'a LockKey,
        limit: Option<NonZeroU32>,
    ) -> InspectAnswer<'a, ()> {
        self.ask((key.clone(), limit), async |inner, (key, limit)| {
            inner.set_permits(&key, limit).await
        })
    }

    fn list_locks<'a>(&'a self, query: &'a ListQuery) -> InspectAnswer<'a, Page<LockEntry>> {
        self.ask(query.clone(), async |inner, query| {
            inner.list_locks(&query).await
        })
    }

    fn list_records<'a>(&'a self, query: &'a ListQuery) -> InspectAnswer<'a, Page<RecordEntry>> {
        self.ask(query.clone(), async |inner, query| {
            inner.list_records(&query).await
        })
    }

    fn record<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, Option<Bytes>> {
        self.ask(key.clone(), async |inner, key| inner.record(&key).await)
    }

    fn forget_record<'a>(&'a self, key: &'a LockKey) -> InspectAnswer<'a, bool> {
        self.ask(key.clone(), async |inner, key| {
            inner.forget_record(&key).await
        })
    }

    fn announce<'a>(
        &'a self,
        client: Uuid,
        process: &'a ProcessInfo,
        lifetime: Duration,
    ) -> InspectAnswer<'a, ()> {
        self.ask(process.clone(), move |inner, process| async move {
            inner.announce(client, &process, lifetime).await
        })
    }

    fn processes<'a>(&'a self, clients: &'a [Uuid]) -> InspectAnswer<'a, Vec<Option<ProcessInfo>>> {
        self.ask(clients.to_vec(), async |inner, clients| {
            inner.processes(&clients).await
        })
    }

    fn audit<'a>(&'a self) -> InspectAnswer<'a, Audit> {
        self.ask((), async |inner, ()| inner.audit().await)
    }
}
