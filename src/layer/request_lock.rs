//! What the layers around a request tell its handler.

use std::time::Duration;

use http::Extensions;

use crate::client::LockClient;
use crate::error::LockError;
use crate::guard::{LockGuard, LockHandle};
use crate::lock::Owner;

/// The lock and the owner of a request. In its extensions.
#[derive(Debug, Clone)]
pub(crate) struct RequestLock {
    pub(crate) owner: Owner,
    /// The lock of the innermost layer that holds one.
    pub(crate) lock: Option<LockHandle>,
}

impl RequestLock {
    pub(crate) fn of(extensions: &mut Extensions) -> &mut Self {
        Self::or_of(extensions, Owner::new)
    }

    /// The one that is there, or a new one of `owner`.
    pub(super) fn or_of(extensions: &mut Extensions, owner: impl FnOnce() -> Owner) -> &mut Self {
        extensions.get_or_insert_with(|| Self {
            owner: owner(),
            lock: None,
        })
    }
}

impl LockHandle {
    /// The lock that the innermost layer holds around the request with these extensions. With axum, extract a `LockHandle` instead.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<RequestLock>()?.lock.as_ref()
    }

    /// Takes one more share in the lock that a [`DistributedLockLayer`](super::DistributedLockLayer) holds around a request, at once: it is held until that guard has ended too, even
    /// beyond the response, but not beyond the layer's [`max_hold`](super::DistributedLockLayer::max_hold).
    ///
    /// ```
    /// # use tower_distributed_lock::{LockClient, LockError, LockHandle};
    /// # async fn import() {}
    /// async fn start(locks: LockClient, lock: LockHandle) -> Result<&'static str, LockError> {
    ///     let guard = lock.share(&locks).await?;
    ///     tokio::spawn(async move {
    ///         import().await;
    ///         guard.release().await
    ///     });
    ///     Ok("the import has begun")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock is lost, and [`LockError::Invalid`] if it has ended, or is not that of a
    /// [`DistributedLockLayer`](super::DistributedLockLayer) on this client. The handle of a [`LockGuard`] does not know its owner, and
    /// the lock of an [`IdempotencyLayer`](crate::IdempotencyLayer) must end with its response, which is recorded in the same step.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future takes no share.
    pub async fn share(&self, client: &LockClient) -> Result<LockGuard, LockError> {
        let Some(owner) = self.owner().filter(|_| self.id().client() == client.id()) else {
            return Err(LockError::invalid(
                "only the lock of a `DistributedLockLayer` can be shared by its handle, with the client of that layer: name the \
                 owner of another guard by `LockRequest::owner`. The lock of an `IdempotencyLayer` ends with the response: do \
                 the work before, or under a lock of its own",
            ));
        };
        if self.is_lost() {
            return Err(LockError::Lost);
        }
        let ended = || LockError::invalid("the lock has ended, so that it has no shares");
        if self.has_ended() {
            return Err(ended());
        }
        let holds = self.holds().map(|hold| (hold.key.clone(), hold.mode));
        let guard = client
            .lock_all(holds)
            .owner(owner)
            .wait(Duration::ZERO)
            .await?;
        // It may have ended meanwhile: a new hold is no share.
        let shared = guard.handle();
        match shared
            .holds()
            .map(|hold| hold.id)
            .eq(self.holds().map(|hold| hold.id))
        {
            true => Ok(guard),
            false => Err(ended()),
        }
    }
}

impl Owner {
    /// The owner of the request with these extensions. With axum, extract an `Owner` instead.
    pub fn of(extensions: &mut Extensions) -> &Self {
        &RequestLock::of(extensions).owner
    }
}
