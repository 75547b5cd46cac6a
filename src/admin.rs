//! Administration: holders, waiters, records, and breaking locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::audit::Audit;
use crate::client::LockClient;
use crate::error::{LockError, StoreError};
use crate::lock::{LockKey, Namespace};
use crate::store::{
    DynInspect, Inspect, Inspection, ListQuery, LockEntry, Page, RecordEntry, inspector,
};
use crate::telemetry::{self, Events, LockEventKind, Route};

/// Inspects the locks of any holder, and breaks them.
///
/// It is a separate type, so that code that takes locks does not break them by mistake. [`LockClient::admin`] makes it for a
/// client's store. Holders and waiters appear under their ids in the store, those of Redisson clients too; holders whose process
/// [announces](crate::LockClientBuilder::announce) itself with host, process id and label. Clones administer the same store. A key
/// of another [name space](Self::namespace) is refused as [`LockError::Invalid`], because here it would name another thing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
/// use tower_distributed_lock::{ListQuery, LockAdmin, LockClient, MemoryStore};
///
/// let store = MemoryStore::new();
/// let locks = LockClient::new(store.clone());
/// let admin = LockAdmin::new(store);
///
/// let guard = locks.lock("report").await?;
/// let report = admin.inspect("report").await?;
/// assert!(report.holders[0].id.starts_with(&locks.id().to_string()));
///
/// let page = admin.locks(&ListQuery::new().prefix("rep")).await?;
/// assert_eq!(page.entries[0].key.as_str(), "report");
///
/// assert!(admin.force_unlock("report").await?);
/// assert!(guard.release().await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockAdmin {
    store: Arc<dyn DynInspect>,
    namespace: Namespace,
    /// Those of the client that it belongs to.
    events: Events,
}

impl LockAdmin {
    /// Administers the locks in `store`.
    pub fn new(store: impl Inspect) -> Self {
        Self {
            store: inspector(store),
            namespace: Namespace::default(),
            events: Events::default(),
        }
    }

    /// Sees only keys and records of clients with this [name space](crate::LockClientBuilder::namespace), under their names
    /// without it. That of [`LockClient::admin`] sees those of its client.
    ///
    /// # Panics
    ///
    /// Where [`LockClientBuilder::build`](crate::LockClientBuilder::build) does.
    #[must_use]
    pub fn namespace(self, name: impl AsRef<str>) -> Self {
        let namespace = Namespace::new(name.as_ref()).unwrap_or_else(|reason| {
            panic!("this `LockAdmin` has no proper `namespace`: {reason}");
        });
        Self { namespace, ..self }
    }

    /// The key in the name space, unless it is in another.
    fn named(&self, key: impl Into<LockKey>) -> Result<LockKey, LockError> {
        let key = self.namespace.key(key.into());
        self.namespace.check(&key).map_err(LockError::invalid)?;
        Ok(key)
    }

    /// A page of the store, as a page of the name space.
    async fn page<T>(
        &self,
        query: &ListQuery,
        list: impl AsyncFnOnce(&ListQuery) -> Result<Page<T>, StoreError>,
        key: impl Fn(&mut T) -> &mut LockKey,
    ) -> Result<Page<T>, LockError> {
        let mut query = query.clone().limit(query.limit);
        query.prefix.insert_str(0, self.namespace.prefix());
        let mut page = list(&query).await?;
        page.entries.retain_mut(|entry| {
            let key = key(entry);
            let own = self.namespace.own(key.clone());
            own.map(|own| *key = own).is_some()
        });
        Ok(page)
    }

    /// Adds the processes of the holders that have announced themselves.
    ///
    /// It fails if the user of the store may not read them, or the store does not answer any more: they are left out then, and
    /// the rest of the inspection counts.
    async fn introduce<'a>(&self, inspections: impl Iterator<Item = &'a mut Inspection>) {
        let mut holders: Vec<_> = inspections
            .flat_map(|inspection| &mut inspection.holders)
            .filter_map(|holder| Some((holder.client()?, holder)))
            .collect();
        let clients: BTreeSet<Uuid> = holders.iter().map(|(client, _)| *client).collect();
        let clients: Vec<_> = clients.into_iter().collect();
        if clients.is_empty() {
            return;
        }
        let processes = match self.store.processes(&clients).await {
            Ok(processes) => processes,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::debug!(error, "could not read the processes of holders");
            }
        };
        let processes: BTreeMap<_, _> = clients.iter().zip(processes).collect();
        for (client, holder) in &mut holders {
            if let Some(Some(process)) = processes.get(client) {
                let number = holder.number();
                holder.route = number.and_then(|number| process.routes.get(&number).cloned());
                holder.process = Some(process.without_routes());
            }
        }
    }

    /// Returns the holders of `key`, and its waiters. A free key has neither.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`]; [`LockError::Conflict`] if the key is not a lock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn inspect(&self, key: impl Into<LockKey>) -> Result<Inspection, LockError> {
        let mut inspection = self.store.inspect(&self.named(key)?).await?;
        self.introduce([&mut inspection].into_iter()).await;
        Ok(inspection)
    }

    /// Ends every hold on `key`, and wakes its waiters. Returns whether there was any hold. The holders learn of the loss at
    /// their next renewal, a third of their lease after the last, or at their release. Until then an [`Owner`](crate::Owner)
    /// that holds the key takes it again without a question to the store. A fixed lease is not renewed: only its release
    /// finds the loss before its end. It also ends a hold that never expires.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`]; [`LockError::Conflict`] if the key is not a lock.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may still take effect.
    pub async fn force_unlock(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        let key = self.named(key)?;
        let broken = self.store.force_unlock(&key).await?;
        if broken {
            let route = Route::default();
            self.events
                .tell(&key, None, &route, || LockEventKind::Broken);
        }
        Ok(broken)
    }

    /// Gives `key` `limit` permits ([`LockMode::permits`](crate::LockMode::permits)), whatever limit requests name, so that more or
    /// fewer holds are admitted without a new version of the program. The limit counts at once, for every process, until it is
    /// changed or [cleared](Self::clear_permit_limit). Redisson's `setPermits` sets the same number.
    ///
    /// Permits that are held stay held: when there are more than `limit`, none is granted until enough have ended.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// # use tower_distributed_lock::{LockClient, MemoryStore};
    /// # let locks = LockClient::new(MemoryStore::new());
    /// let admin = locks.admin()?;
    /// admin.set_permits("upstream:mail", 2).await?;
    /// let one = locks.lock("upstream:mail").permits(1).await?;
    /// let other = locks.lock("upstream:mail").permits(1).await?;
    /// assert_eq!(admin.inspect("upstream:mail").await?.limit, Some(2));
    /// # drop(one); other.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::Invalid`] for a limit of 0; [`LockError::Conflict`] if the key has other data;
    /// [`LockError::Unavailable`], also if the store has no permits.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may still be carried out.
    pub async fn set_permits(&self, key: impl Into<LockKey>, limit: u32) -> Result<(), LockError> {
        let limit = NonZeroU32::new(limit)
            .ok_or_else(|| LockError::invalid("a limit of 0 permits lets no request through"))?;
        Ok(self
            .store
            .set_permits(&self.named(key)?, Some(limit))
            .await?)
    }

    /// Ends what [`set_permits`](Self::set_permits) has set: when no permit is held, the limit is what the next request
    /// names. It does not touch a limit that Redisson has set.
    ///
    /// # Errors
    ///
    /// Those of [`set_permits`](Self::set_permits).
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may still be carried out.
    pub async fn clear_permit_limit(&self, key: impl Into<LockKey>) -> Result<(), LockError> {
        Ok(self.store.set_permits(&self.named(key)?, None).await?)
    }

    /// Returns one page of the held keys, with their holders and waiters.
    ///
    /// Locks and permits of Redisson clients are listed too. In a Redis database with many other keys most pages are empty:
    /// follow [`Page::next`] to the end.
    ///
    /// ```
    /// # async fn list(admin: tower_distributed_lock::LockAdmin) -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::ListQuery;
    ///
    /// let mut query = ListQuery::new().prefix("lock:order:");
    /// loop {
    ///     let page = admin.locks(&query).await?;
    ///     for lock in page.entries {
    ///         println!("{} is held by {}", lock.key, lock.inspection.holders[0].id);
    ///     }
    ///     match page.next {
    ///         Some(cursor) => query = query.after(cursor),
    ///         None => return Ok(()),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`], also if the store does not list its keys, or the cursor is not one of this store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, LockError> {
        let list = async |query: &ListQuery| self.store.list_locks(query).await;
        let mut page = self.page(query, list, |entry| &mut entry.key).await?;
        let inspections = page.entries.iter_mut().map(|entry| &mut entry.inspection);
        self.introduce(inspections).await;
        Ok(page)
    }

    /// Returns one page of the keys with a record, such as the response to an idempotent request.
    ///
    /// # Errors
    ///
    /// Those of [`LockAdmin::locks`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn records(&self, query: &ListQuery) -> Result<Page<RecordEntry>, LockError> {
        let list = async |query: &ListQuery| self.store.list_records(query).await;
        self.page(query, list, |entry| &mut entry.key).await
    }

    /// Returns the record under `key`, as its writer encoded it.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`], also if the store keeps no records.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn record(&self, key: impl Into<LockKey>) -> Result<Option<Bytes>, LockError> {
        Ok(self.store.record(&self.named(key)?).await?)
    }

    /// Removes the record under `key`. Returns whether there was one. A repeat of its work runs again.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`], also if the store keeps no records.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped once it was polled may have had its effect.
    pub async fn forget_record(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        Ok(self.store.forget_record(&self.named(key)?).await?)
    }

    /// Audits the deployment of the store, as [`LockClient::audit`](crate::LockClient::audit).
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn audit(&self) -> Result<Audit, LockError> {
        let audit = self.store.audit().await?;
        telemetry::audited(&audit);
        Ok(audit)
    }
}

impl LockClient {
    /// Administers the locks in the store of this client.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let guard = locks.lock("lock:report").await?;
    /// assert!(locks.admin()?.inspect("lock:report").await?.is_held());
    /// # guard.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::Unsupported`] if the store offers no inspection.
    pub fn admin(&self) -> Result<LockAdmin, LockError> {
        let store = self.inspector().map_err(LockError::Unsupported)?;
        Ok(LockAdmin {
            store,
            namespace: self.namespace().clone(),
            events: self.event_reporter().clone(),
        })
    }
}

impl fmt::Debug for LockAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAdmin").finish_non_exhaustive()
    }
}
