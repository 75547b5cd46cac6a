//! Administration: who holds what, who waits, and force.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::error::LockError;
use crate::error::StoreError;
use crate::lock::{LockKey, LockMode};
use crate::store::LockStore;

/// Looks into locks, whoever holds them, and breaks them.
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
    pub async fn inspect(&self, key: impl Into<LockKey>) -> Result<Inspection, LockError> {
        Ok(self.store.inspect(&key.into()).await?)
    }

    /// Ends every hold on `key`, and wakes those who wait for it; says whether there was any. The holders find their locks
    /// lost at their next renewal or release. It also ends a hold that would never expire.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`]; [`LockError::Conflict`] if the key holds something that is no lock.
    pub async fn force_unlock(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        Ok(self.store.force_unlock(&key.into()).await?)
    }
}

impl<S> fmt::Debug for LockAdmin<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAdmin").finish_non_exhaustive()
    }
}

/// A store that [`LockAdmin`] can look into.
pub trait Inspect: LockStore {
    /// Who holds `key`, and who waits for it.
    fn inspect(&self, key: &LockKey)
    -> impl Future<Output = Result<Inspection, StoreError>> + Send;

    /// Ends every hold on `key` and wakes the waiters, as the releases of the holds would; says whether there was any.
    fn force_unlock(&self, key: &LockKey) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// What is known of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Those who hold it, in no particular order.
    pub holders: Vec<Holder>,
    /// Those who wait for it, as far as the store knows: a fair queue in its order, and the waiting readers and writers of
    /// this crate. Others wait unseen.
    pub waiters: Vec<String>,
}

impl Inspection {
    /// Whether anybody holds the key.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// One holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name in the store: `<client uuid>:<number>`; the number is a thread id where the client is Redisson.
    pub id: String,
    /// How it holds the key. The store does not tell `Fair` from `Reentrant`; it says `Reentrant` for both.
    pub mode: LockMode,
    /// How many times it has entered, as far as the store knows.
    pub count: u64,
    /// How long its hold lives without renewal; [`Duration::MAX`] if it never ends, which no client of the protocol means.
    pub remaining: Duration,
}
