//! A store that offers inspection, without its type.

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

/// An answer to an inspector's question.
pub(crate) type InspectAnswer<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Declares each method of [`Inspect`], and forwards it.
macro_rules! erased {
    ($(fn $method:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        /// [`Inspect`] without its type.
        pub(crate) trait DynInspect: Send + Sync {
            $(fn $method<'a>(&'a self $(, $argument: $type)*) -> InspectAnswer<'a, $answer>;)*
        }

        impl<S: Inspect> DynInspect for ErasedInspect<S> {
            $(fn $method<'a>(&'a self $(, $argument: $type)*) -> InspectAnswer<'a, $answer> {
                Box::pin(self.0.$method($($argument),*))
            })*
        }
    };
}

erased! {
    fn inspect(&self, key: &'a LockKey) -> Inspection;
    fn force_unlock(&self, key: &'a LockKey) -> bool;
    fn set_permits(&self, key: &'a LockKey, limit: Option<NonZeroU32>) -> ();
    fn list_locks(&self, query: &'a ListQuery) -> Page<LockEntry>;
    fn list_records(&self, query: &'a ListQuery) -> Page<RecordEntry>;
    fn record(&self, key: &'a LockKey) -> Option<Bytes>;
    fn forget_record(&self, key: &'a LockKey) -> bool;
    fn announce(&self, client: Uuid, process: &'a ProcessInfo, lifetime: Duration) -> ();
    fn processes(&self, clients: &'a [Uuid]) -> Vec<Option<ProcessInfo>>;
    fn audit(&self) -> Audit;
}

struct ErasedInspect<S>(S);

/// Erases the type of a store.
pub(crate) fn inspector(store: impl Inspect) -> Arc<dyn DynInspect> {
    Arc::new(ErasedInspect(store))
}
