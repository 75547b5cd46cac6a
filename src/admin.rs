//! Administration: who holds what, who waits, and force.

use std::fmt;

use crate::error::LockError;
use crate::lock::LockKey;
pub use crate::store::{Holder, Inspect, Inspection};

/// Looks into locks of any holder, and breaks them.
///
/// It is a type of its own, which neither the layer nor a client hands out: who can name it can take locks away. Holders
/// and waiters appear under the names that they have in the store, those of Redisson clients too.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
/// use tower_distributed_lock::{LockAdmin, LockClient, MemoryStore};
///
/// let store = MemoryStore::new();
/// let locks = LockClient::new(store.clone());
/// let admin = LockAdmin::new(store);
///
/// let guard = locks.lock("report").await?;
/// let report = admin.inspect("report").await?;
/// assert!(report.holders[0].id.starts_with(&locks.id().to_string()));
///
/// assert!(admin.force_unlock("report").await?);
/// assert!(guard.release().await.is_err());
/// # Ok(())
/// # }
/// ```
pub struct LockAdmin<S> {
    store: S,
}

impl<S: Inspect> LockAdmin<S> {
    /// Administers the locks in `store`.
    pub fn new(store: S) -> Self {
        Self { store }
    }

    /// Who holds `key`, and who waits for it. A free key has neither.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`]; [`LockError::Conflict`] if the key holds something that is no lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the question. It changes nothing.
    pub async fn inspect(&self, key: impl Into<LockKey>) -> Result<Inspection, LockError> {
        Ok(self.store.inspect(&key.into()).await?)
    }

    /// Ends every hold on `key`, and wakes those who wait for it; says whether there was any. The holders find their locks
    /// lost at their next renewal or release. It also ends a hold that would never expire.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`]; [`LockError::Conflict`] if the key holds something that is no lock.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may still be carried out.
    pub async fn force_unlock(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        Ok(self.store.force_unlock(&key.into()).await?)
    }
}

impl<S> fmt::Debug for LockAdmin<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAdmin").finish_non_exhaustive()
    }
}
