//! Operations on single holds, for direct calls of a store.

use super::{HoldStatus, LockStore, Renewal};
use crate::error::{StoreError, StoreErrorKind};
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
}

impl<S: LockStore + ?Sized> LockStoreExt for S {}

/// The error for an answer that does not fit the question. The question may have taken effect.
pub(super) fn misfit(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Unanswered, why)
}

/// The error for an answer with a wrong number of holds.
pub(super) fn wrong_size(expected: usize, found: usize) -> StoreError {
    misfit(format!(
        "the store answered about {found} holds and was asked about {expected}"
    ))
}
