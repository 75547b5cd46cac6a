//! What can go wrong, sorted by what a caller can do about it.

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
    /// Another owner held the lock until the wait was over. Nothing is held; a place in a queue is given up in the
    /// background, within about a round trip.
    #[error("the lock is held elsewhere and the wait is over")]
    Busy {
        /// When the present holder's lease would end, as far as this process or the store knows. It may be renewed or
        /// released before.
        retry_after: Option<Duration>,
    },
    /// Too many callers wait for this key already, or the client uses as many keys as it may. Nothing is held or queued.
    #[error("too many callers wait for the lock already")]
    Overloaded,
    /// The hold was lost: its lease lapsed, or it was removed from the store. Work done under it may have overlapped other work.
    #[error("the lock was lost while it was held")]
    Lost,
    /// The store could not be asked, or did not answer in time.
    ///
    /// An acquisition that ends so holds nothing: what the store may have granted unheard is taken back in the
    /// background. A release that ends so is unconfirmed; it goes on in the background until the lease is over.
    #[error("the lock store is unavailable")]
    Unavailable(#[source] StoreError),
    /// The key holds something that is not this kind of lock: another program's data, or a lock of the other
    /// [family](crate::LockFamily). Waiting does not help. Lock a thing under one name and in one family of modes everywhere:
    /// see [`Resource`](crate::Resource).
    #[error(
        "the key holds something else than this kind of lock: give the resource a name that nothing else uses, and lock it in \
         one family of modes everywhere (`Read` and `Write`, or `Reentrant` and `Fair`)"
    )]
    Conflict(#[source] StoreError),
    /// The owner holds the key for reading and asked to write. Waiting for its own read to end would never end: release
    /// the read first.
    #[error("a read hold cannot be upgraded: release it before asking to write")]
    Upgrade,
    /// The store cannot do what was asked; the text says what, and what to do instead.
    #[error("{0}")]
    Unsupported(Unsupported),
    /// The request contradicts itself; the text says what to change.
    #[error(transparent)]
    Invalid(InvalidRequest),
    /// The client was shut down.
    #[error("the lock client was shut down")]
    Shutdown,
}

/// What is wrong with a request for a lock; the text says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(Cow<'static, str>);

impl LockError {
    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(InvalidRequest(text.into()))
    }

    /// Whether the lock could not be had because others hold it or wait for it: [`Busy`](Self::Busy) and
    /// [`Overloaded`](Self::Overloaded).
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Overloaded)
    }

    /// The gRPC status code for a caller of a service that met this error, such as `tonic::Code::from_i32` takes it.
    ///
    /// | error | code |
    /// |---|---|
    /// | `Busy` | 10 `ABORTED` |
    /// | `Overloaded` | 8 `RESOURCE_EXHAUSTED` |
    /// | `Unavailable`, `Shutdown` | 14 `UNAVAILABLE` |
    /// | `Lost` | 2 `UNKNOWN`: what the work did is unknown |
    /// | others | 13 `INTERNAL` |
    pub fn grpc_code(&self) -> i32 {
        match self {
            Self::Busy { .. } => 10,
            Self::Overloaded => 8,
            Self::Unavailable(_) | Self::Shutdown => 14,
            Self::Lost => 2,
            Self::Conflict(_) | Self::Upgrade | Self::Unsupported(_) | Self::Invalid(_) => 13,
        }
    }

    /// Whether the same acquisition may succeed later, with nothing changed in the program or the store's settings: when the
    /// lock is [busy](Self::is_busy), or the store is unavailable without having refused.
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

/// What a [`StoreError`] means for the operation that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The operation never reached the store: it has had no effect.
    Unreachable,
    /// The operation was sent and no answer came: it may have had its effect, or may still have it later.
    Unanswered,
    /// The store answered that it cannot do it just now (loading, busy, failing over): no effect, worth another try.
    Transient,
    /// The store answered that it will not do it (access rights, memory): no effect, another try would not help.
    Refused,
    /// The key holds something that is not this kind of lock: no effect. From a release: the hold has ended, but something
    /// else, such as data of the application, stands beside it and was left there.
    Conflict,
    /// The store did it, but fewer of its replicas acknowledged it than were asked for. An acquisition was taken back
    /// again: no effect. A renewal or a release had its effect, which a failover may undo: nothing is confirmed.
    Unacknowledged,
}

impl StoreError {
    /// Wraps `source` and says what it means.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: source.into().into(),
        }
    }

    /// What the failure means for the operation that met it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unreachable => "the store cannot be reached",
            StoreErrorKind::Unanswered => "the store did not answer",
            StoreErrorKind::Transient => "the store cannot serve just now",
            StoreErrorKind::Refused => "the store refused",
            StoreErrorKind::Conflict => "the key holds something that is not this kind of lock",
            StoreErrorKind::Unacknowledged => "too few replicas acknowledged it",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
