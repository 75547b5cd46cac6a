//! A store that offers inspection, without its type.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{Inspect, Inspection, ListQuery, LockEntry, Page, ProcessInfo, RecordEntry};
use crate::audit::Audit;
use crate::error::StoreError;
use crate::lock::LockKey;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// [`Inspect`] without its type.
pub(crate) trait DynInspect: Send + Sync {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> Answer<'a, Inspection>;
    fn force_unlock<'a>(&'a self, key: &'a LockKey) -> Answer<'a, bool>;
    fn set_permits<'a>(&'a self, key: &'a LockKey, limit: Option<NonZeroU32>) -> Answer<'a, ()>;
    fn list_locks<'a>(&'a self, query: &'a ListQuery) -> Answer<'a, Page<LockEntry>>;
    fn list_records<'a>(&'a self, query: &'a ListQuery) -> Answer<'a, Page<RecordEntry>>;
    fn record<'a>(&'a self, key: &'a LockKey) -> Answer<'a, Option<Bytes>>;
    fn forget_record<'a>(&'a self, key: &'a LockKey) -> Answer<'a, bool>;
    fn announce<'a>(
        &'a self,
        client: Uuid,
        process: &'a ProcessInfo,
        lifetime: Duration,
    ) -> Answer<'a, ()>;
    fn processes<'a>(&'a self, clients: &'a [Uuid]) -> Answer<'a, Vec<Option<ProcessInfo>>>;
    fn audit(&self) -> Answer<'_, Audit>;
}

/// Erases the type of a store.
pub(crate) fn inspector(store: impl Inspect) -> Arc<dyn DynInspect> {
    Arc::new(ErasedInspect(store))
}

struct ErasedInspect<S>(S);

impl<S: Inspect> DynInspect for ErasedInspect<S> {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> Answer<'a, Inspection> {
        Box::pin(self.0.inspect(key))
    }

    fn force_unlock<'a>(&'a self, key: &'a LockKey) -> Answer<'a, bool> {
        Box::pin(self.0.force_unlock(key))
    }

    fn set_permits<'a>(&'a self, key: &'a LockKey, limit: Option<NonZeroU32>) -> Answer<'a, ()> {
        Box::pin(self.0.set_permits(key, limit))
    }

    fn list_locks<'a>(&'a self, query: &'a ListQuery) -> Answer<'a, Page<LockEntry>> {
        Box::pin(self.0.list_locks(query))
    }

    fn list_records<'a>(&'a self, query: &'a ListQuery) -> Answer<'a, Page<RecordEntry>> {
        Box::pin(self.0.list_records(query))
    }

    fn record<'a>(&'a self, key: &'a LockKey) -> Answer<'a, Option<Bytes>> {
        Box::pin(self.0.record(key))
    }

    fn forget_record<'a>(&'a self, key: &'a LockKey) -> Answer<'a, bool> {
        Box::pin(self.0.forget_record(key))
    }

    fn announce<'a>(
        &'a self,
        client: Uuid,
        process: &'a ProcessInfo,
        lifetime: Duration,
    ) -> Answer<'a, ()> {
        Box::pin(self.0.announce(client, process, lifetime))
    }

    fn processes<'a>(&'a self, clients: &'a [Uuid]) -> Answer<'a, Vec<Option<ProcessInfo>>> {
        Box::pin(self.0.processes(clients))
    }

    fn audit(&self) -> Answer<'_, Audit> {
        Box::pin(self.0.audit())
    }
}
