//! A store that answers when it is asked.

use tokio::time::Instant;

use super::{Attempt, Outcome, Record, Released};
use crate::error::StoreError;
use crate::lock::Hold;

/// A store whose questions take effect, and are answered, when they are asked.
pub(crate) trait StoreAtOnce {
    /// [`LockStore::acquire`](super::LockStore::acquire), with the time of the decision.
    ///
    /// It runs no code outside this crate, except for a permit, whose grant may wake another waiter. So a caller may hold a mutex.
    fn acquire_now(&self, attempt: &Attempt) -> Result<(Outcome, Instant), StoreError>;

    /// Whether the store carries the hold.
    fn holds_now(&self, hold: &Hold) -> bool;

    /// [`LockStore::release`](super::LockStore::release) of one hold.
    fn release_now(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError>;
}
