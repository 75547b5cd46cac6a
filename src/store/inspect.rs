//! Inspection of a store, and breaking locks.

use std::num::NonZeroU32;
use std::time::Duration;

use uuid::Uuid;

use super::LockStore;
use super::inspection::Inspection;
use super::listing::{ListQuery, LockEntry, Page, RecordEntry};
use super::process::ProcessInfo;
use crate::error::{Feature, StoreError, StoreErrorKind, Unsupported};
use crate::lock::{LockKey, LockMode};

/// A store that [`LockAdmin`](crate::LockAdmin) can inspect.
pub trait Inspect: LockStore {
    /// The holders of `key`, and its waiters.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](StoreErrorKind::Unreachable) and the like if the store does not answer, and
    /// [`Refused`](StoreErrorKind::Refused) if a right is missing.
    fn inspect(&self, key: &LockKey)
    -> impl Future<Output = Result<Inspection, StoreError>> + Send;

    /// Ends every hold on `key` and wakes the waiters, as the releases of the holds do. Returns whether there was any.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect). After [`Unanswered`](StoreErrorKind::Unanswered) it is unknown whether the holds ended.
    fn force_unlock(&self, key: &LockKey) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Sets how many permits `key` has, whatever the attempts name that take one; `None` leaves it to the attempts again.
    /// Permits that are held stay held. Those who wait are woken when permits come free by it.
    ///
    /// # Errors
    ///
    /// [`Conflict`](StoreErrorKind::Conflict) if the key has other data. The default has no permits, and refuses.
    fn set_permits(
        &self,
        key: &LockKey,
        limit: Option<NonZeroU32>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = (key, limit);
        async { Err(missing(Feature::Mode(LockMode::permits(1)))) }
    }

    /// Some of the held keys.
    ///
    /// # Errors
    ///
    /// The default lists nothing, and refuses.
    fn list_locks(
        &self,
        query: &ListQuery,
    ) -> impl Future<Output = Result<Page<LockEntry>, StoreError>> + Send {
        let _ = query;
        async { Err(missing(Feature::Listing)) }
    }

    /// Some of the keys with a record.
    ///
    /// # Errors
    ///
    /// The default lists nothing, and refuses.
    fn list_records(
        &self,
        query: &ListQuery,
    ) -> impl Future<Output = Result<Page<RecordEntry>, StoreError>> + Send {
        let _ = query;
        async { Err(missing(Feature::Listing)) }
    }

    /// Removes the record under `key`. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// The default keeps no records, and refuses.
    fn forget_record(
        &self,
        key: &LockKey,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = key;
        async { Err(missing(Feature::Records)) }
    }

    /// Keeps the entry of the process of `client` for `lifetime`, in place of an earlier one. A `lifetime` of zero removes it.
    ///
    /// # Errors
    ///
    /// The default keeps no entries, and refuses.
    fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = (client, process, lifetime);
        async { Err(missing(Feature::Processes)) }
    }

    /// The entries of the processes of `clients`, in this order; `None` for a client without an entry. The default has none.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](StoreErrorKind::Unreachable) and the like if the store does not answer, and
    /// [`Refused`](StoreErrorKind::Refused) if a right is missing. The default never fails.
    fn processes(
        &self,
        clients: &[Uuid],
    ) -> impl Future<Output = Result<Vec<Option<ProcessInfo>>, StoreError>> + Send {
        let none = vec![None; clients.len()];
        async { Ok(none) }
    }
}

pub(super) fn missing(feature: Feature) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, Unsupported::from(feature))
}
