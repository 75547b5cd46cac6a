//! Errors, by what a caller can do about them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod unsupported;

pub use unsupported::{Feature, Unsupported};

/// An error of any type, such as that of a body.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a lock was not acquired, or why a release does not confirm the work done under it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use std::time::Duration;
/// use tower_distributed_lock::LockError;
///
/// match locks.lock("lock:nightly").wait(Duration::ZERO).await {
///     Ok(guard) => guard.release().await?,
///     Err(LockError::Busy { .. }) => println!("it runs elsewhere"),
///     Err(error) if error.is_retryable() => println!("try again: {error}"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner held the lock until the wait was over. The caller has no hold; its place in a queue is given up in the
    /// background, within about a round trip.
    #[error("the lock is still in use and the wait is over")]
    Busy {
        /// When the present holder's lease would end, as far as this process or the store knows. It may be renewed or
        /// released before.
        retry_after: Option<Duration>,
    },
    /// Too many callers wait for this key already, or the client uses the largest number of keys. Nothing is held or queued.
    #[error("too many callers wait for the lock already")]
    Overloaded,
    /// The hold was lost: its lease expired, or it was removed from the store. Work done under it may have overlapped other
    /// work.
    #[error("the lock was lost while it was held")]
    Lost,
    /// The store could not be reached, or did not answer in time. After an acquisition nothing is held: a grant whose answer was
    /// lost is withdrawn in the background. After a shutdown the releases go on.
    #[error("the lock store is unavailable")]
    Unavailable(#[source] StoreError),
    /// The store did not confirm a release: it could not be reached, did not answer in time, or refused. The work under the lock
    /// has ended, and may have overlapped other work. The release continues in the background until the lease is over.
    #[error("the lock store has not confirmed the release")]
    Unconfirmed(#[source] StoreError),
    /// The key is not this kind of lock: it has another program's data, a lock of another [family](crate::lock::LockFamily), or
    /// [permits](crate::LockMode::permits) with another limit. Waiting does not help. Lock a resource under one name and in
    /// one family of modes everywhere: see [`Resource`](crate::Resource).
    #[error(
        "the key has data that is not this kind of lock: give the resource a name that nothing else uses, and lock it in \
         one family of modes everywhere (`Read` and `Write`, or `Reentrant` and `Fair`)"
    )]
    Conflict(#[source] StoreError),
    /// The owner holds the key for reading and asked to write. It would wait for its own read for ever: release the read first.
    #[error("a read hold cannot be upgraded: release it before asking to write")]
    Upgrade,
    /// The store does not support the request; the text names the missing feature, and the alternative.
    #[error("{0}")]
    Unsupported(Unsupported),
    /// The request is contradictory; the text names the change.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// The client was shut down.
    #[error("the lock client was shut down")]
    Shutdown,
}

impl LockError {
    #[cold]
    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(text.into())
    }

    /// Whether the lock was refused because of other holders or waiters: [`Busy`](Self::Busy) and
    /// [`Overloaded`](Self::Overloaded).
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Overloaded)
    }

    /// Whether the same acquisition may succeed later, without a change in the program or the store's settings: when the lock is
    /// [busy](Self::is_busy), or the store is unavailable and has not refused.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(error) => error.kind() != StoreErrorKind::Refused,
            error => error.is_busy(),
        }
    }
}

impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Conflict => Self::Conflict(error),
            _ => Self::Unavailable(error),
        }
    }
}

/// A failure of a store, with its cause as an opaque source.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Arc<dyn Error + Send + Sync>,
}

/// What a [`StoreError`] means for the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The operation never reached the store: it has had no effect.
    Unreachable,
    /// The operation was sent, and no answer arrived: it may have taken effect, or may still do so.
    Unanswered,
    /// The store answered that it cannot serve now (loading, busy, failing over): no effect, another attempt may succeed.
    Transient,
    /// The store refused (access rights, memory): no effect, another attempt does not help.
    Refused,
    /// The key is not this kind of lock: no effect. From a release: the hold has ended, but the key also has other data, such as
    /// that of the application, which was kept.
    Conflict,
    /// The operation took effect, but too few replicas acknowledged it. An acquisition was withdrawn: no effect. A renewal or a
    /// release took effect, but a failover may undo it: nothing is confirmed.
    Unacknowledged,
}

impl StoreErrorKind {
    /// Whether the cause may end while a request waits: it is asked again after a pause. What too few replicas acknowledged was
    /// withdrawn, and they may be back when the failover is over.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Transient | Self::Unacknowledged)
    }
}

impl StoreError {
    /// Wraps `source` with its kind.
    #[cold]
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: source.into().into(),
        }
    }

    /// What the failure means for the operation.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the operation has certainly had no effect.
    pub(crate) fn is_without_effect(&self) -> bool {
        match self.kind {
            StoreErrorKind::Unreachable
            | StoreErrorKind::Transient
            | StoreErrorKind::Refused
            | StoreErrorKind::Conflict => true,
            StoreErrorKind::Unanswered | StoreErrorKind::Unacknowledged => false,
        }
    }

    /// Whether the cause does not end within seconds, so that the question is not repeated.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Refused | StoreErrorKind::Conflict
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unreachable => "the store cannot be reached",
            StoreErrorKind::Unanswered => "the store did not answer",
            StoreErrorKind::Transient => "the store cannot serve just now",
            StoreErrorKind::Refused => "the store refused",
            StoreErrorKind::Conflict => "the key has data that is not this kind of lock",
            StoreErrorKind::Unacknowledged => "too few replicas acknowledged it",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// The most important of several results: a loss, otherwise the first error.
pub(crate) fn worst(
    results: impl IntoIterator<Item = Result<(), LockError>>,
) -> Result<(), LockError> {
    let mut worst = Ok(());
    for result in results {
        if worst.is_ok() || matches!(result, Err(LockError::Lost)) {
            worst = result;
        }
    }
    worst
}
