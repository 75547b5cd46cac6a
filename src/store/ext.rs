//! Operations on single holds, for direct calls of a store.

use std::future::Future;
use std::slice::from_ref;

use super::{HoldStatus, LockStore, Record, Release, Released, Renewal};
use crate::error::StoreError;
use crate::lock::Hold;

/// Operations on one hold at a time, for code that calls a store directly: tests, tools, stores that are
/// made of stores.
pub trait LockStoreExt: LockStore {
    /// Asks which of `holds` the store carries; answers for each, in order.
    fn check(
        &self,
        holds: &[Hold],
    ) -> impl Future<Output = Result<Vec<HoldStatus>, StoreError>> + Send {
        let checks: Vec<_> = holds.iter().cloned().map(Renewal::check).collect();
        async move { self.renew(&checks).await }
    }

    /// Releases one hold.
    fn release_one(
        &self,
        hold: &Hold,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send {
        let release = Release::new(hold.clone());
        async move { only(self.release(from_ref(&release)).await?) }
    }

    /// Releases one hold and leaves `record` under its key.
    fn release_recording(
        &self,
        hold: &Hold,
        record: &Record,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send {
        let release = Release::new(hold.clone()).record(record.clone());
        async move { only(self.release(from_ref(&release)).await?) }
    }
}

impl<S: LockStore + ?Sized> LockStoreExt for S {}

/// The only answer of a question about one hold.
pub(super) fn only<T>(answers: Vec<T>) -> Result<T, StoreError> {
    let count = answers.len();
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(answer), None) => Ok(answer),
        _ => Err(super::erased::wrong_size(1, count)),
    }
}
