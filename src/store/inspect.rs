//! What a store shows of a lock, and how it ends one by force.

use std::future::Future;
use std::time::Duration;

use super::LockStore;
use crate::error::StoreError;
use crate::lock::{LockKey, LockMode};

/// A store that [`LockAdmin`](crate::LockAdmin) can look into.
pub trait Inspect: LockStore {
    /// Who holds `key`, and who waits for it.
    fn inspect(&self, key: &LockKey)
    -> impl Future<Output = Result<Inspection, StoreError>> + Send;

    /// Ends every hold on `key` and wakes the waiters, as the releases of the holds would; says whether there was any.
    fn force_unlock(&self, key: &LockKey) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// How many holders and how many waiters an [`Inspection`] shows at most.
pub(crate) const SHOWN: usize = 100;

/// What is known of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Those who hold it, in no particular order.
    pub holders: Vec<Holder>,
    /// Those who wait for it, as far as the store knows: a fair queue in its order, and the waiting readers and writers of
    /// this crate. Others wait unseen.
    pub waiters: Vec<String>,
    /// Whether there are more holders or waiters: at most a hundred of each are shown, so that looking at a key costs the
    /// store the same whatever stands in it.
    pub truncated: bool,
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
