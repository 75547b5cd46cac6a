//! A store, called directly.

use std::future::Future;
use std::slice::from_ref;

use super::{HoldStatus, LockStore, Record, Release, Released, Renewal};
use crate::error::StoreError;
use crate::lock::Hold;

/// One hold at a time, for those who call a store themselves: tests, tools, stores that are made of stores.
pub trait LockStoreExt: LockStore {
    /// Asks which of `holds` the store carries; answers for each, in order.
    fn check(
        &self,
        holds: &[Hold],
    ) -> impl Future<Output = Result<Vec<HoldStatus>, StoreError>> + Send {
        let checks: Vec<_> = holds.iter().cloned().map(Renewal::check).collect();
        async move { self.renew(&checks).await }
    }

    /// Ends one hold.
    fn release_one(
        &self,
        hold: &Hold,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send {
        let release = Release::new(hold.clone());
        async move { only(self.release(from_ref(&release)).await?) }
    }

    /// Ends one hold and leaves `record` under its key.
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

/// The answer to one question.
fn only<T>(answers: Vec<T>) -> Result<T, StoreError> {
    let count = answers.len();
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(answer), None) => Ok(answer),
        _ => Err(super::erased::wrong_size(1, count)),
    }
}
