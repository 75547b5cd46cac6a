//! Policies for failures, which the program chooses.

/// How to treat a handler whose lock is lost while it runs. Either way its response is not sent.
///
/// ```
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::{DistributedLockLayer, OnLost};
///
/// // The handler tidies up by itself: it watches `LockHandle::lost`.
/// let lock = DistributedLockLayer::new(locks).on_lost(OnLost::Continue);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnLost {
    /// Its future is dropped at once, and the client gets the answer.
    #[default]
    Abort,
    /// It continues, and may await [`LockHandle::lost`](crate::LockHandle::lost); the client gets the answer afterwards.
    Continue,
}

/// How to treat a handler whose client has disconnected.
///
/// ```
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::{DistributedLockLayer, OnCancel};
///
/// let lock = DistributedLockLayer::new(locks).on_cancel(OnCancel::RunToCompletion);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnCancel {
    /// It is dropped with the request, and the lock is released.
    #[default]
    Drop,
    /// From the grant it runs in a task of its own, to its end, and the lock is held until then. Task-locals of layers further out are
    /// not there: pass such values in the request's extensions. Use it for work that must not be
    /// interrupted when a webhook sender disconnects. A request that still waits for its lock ends with its client. One that
    /// [proceeds](OnUnavailable::Proceed) without its lock runs to its end too.
    ///
    /// Of several layers around a handler, set it on the outermost: a layer further out that drops its request releases its own
    /// lock, while the handler runs on. Call [`LockClient::shutdown`](crate::LockClient::shutdown) before the runtime ends: it
    /// waits for such handlers.
    RunToCompletion,
}

/// How to treat a request when the store is unavailable.
///
/// ```
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::{DistributedLockLayer, OnUnavailable};
///
/// // The handler is safe by itself (a version, a token); the lock only saves it conflicts.
/// let lock = DistributedLockLayer::new(locks).on_unavailable(OnUnavailable::Proceed);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnUnavailable {
    /// It is answered 503.
    #[default]
    Reject,
    /// It continues **without a lock**. [`LockHandle`](crate::LockHandle) is absent then, also if a layer further out holds a lock.
    Proceed,
}

/// How to treat a request that carries no key, or not all of them: if one of several extractors has no key, the request
/// gets none of the others' keys either.
///
/// ```
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::{DistributedLockLayer, OnMissing, key};
///
/// let lock = DistributedLockLayer::new(locks).key(key::header("x-order")).on_missing(OnMissing::Use("lock:no-order"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnMissing {
    /// It is answered 400.
    #[default]
    Reject,
    /// It continues **without a lock**: a client that leaves the key out evades the lock.
    Skip,
    /// All such requests share this name.
    Use(&'static str),
}

/// What must confirm that the lock was held until the end of a request, before its response is sent.
///
/// | the store answers | `Strict` | `Store` | `Deadline` |
/// |---|---|---|---|
/// | the hold was there until now | response ([`ConfirmedBy::Store`]) | response ([`ConfirmedBy::Store`]) | not asked: response if the lease has not run out ([`ConfirmedBy::Lease`]) |
/// | the hold is gone | 500 `lock-lost` | 500 `lock-lost` | |
/// | nothing, for a second; that it refuses; or that too few replicas know | 500 `lock-lost` | response if the lease has not run out ([`ConfirmedBy::Lease`]) | |
///
/// Confirmed exclusion (S5: two confirmed requests never overlapped, whatever any clock does) is promised for responses with
/// [`ConfirmedBy::Store`] only. A response with [`ConfirmedBy::Lease`] relies on this process's clock, and on a store that has
/// kept the hold until the lease expires. A failover or a crash may lose the hold earlier; then two overlapping requests are both
/// answered. By default, requests that write are `Strict`, and requests that only read are `Store`.
///
/// [`ConfirmedBy::Store`]: super::ConfirmedBy::Store
/// [`ConfirmedBy::Lease`]: super::ConfirmedBy::Lease
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Confirm {
    /// The response needs the store's answer. While the store does not answer, a request that has run gets 500 `lock-lost`, and
    /// the client does not know the result of its work.
    #[default]
    Strict,
    /// The store is asked. If it does not answer, the lease decides.
    Store,
    /// The lease decides, and the release runs after the response. This saves the round trip.
    Deadline,
}

/// How requests that only read are treated, in place of what a layer does for all:
/// [`DistributedLockLayer::reads`](super::DistributedLockLayer::reads).
///
/// ```
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::layer::ReadPolicy;
/// use tower_distributed_lock::{Confirm, DistributedLockLayer, OnUnavailable};
///
/// // Reads are answered without a round trip for their release, and even while the store is down.
/// let reads = ReadPolicy { confirm: Confirm::Deadline, on_unavailable: OnUnavailable::Proceed };
/// let lock = DistributedLockLayer::new(locks).reads(reads);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPolicy {
    /// What confirms them. By default [`Confirm::Store`].
    pub confirm: Confirm,
    /// What happens to them while the store is unavailable. By default [`OnUnavailable::Reject`].
    pub on_unavailable: OnUnavailable,
}

impl Default for ReadPolicy {
    fn default() -> Self {
        Self {
            confirm: Confirm::Store,
            on_unavailable: OnUnavailable::Reject,
        }
    }
}

/// When a request's lock is released.
///
/// ```
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::{DistributedLockLayer, ReleaseOn};
///
/// // The export is read while its body streams.
/// let lock = DistributedLockLayer::new(locks).release_on(ReleaseOn::BodyEnd);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReleaseOn {
    /// Before the head of the response is sent; the body is sent without the lock.
    #[default]
    Head,
    /// At the end of the body, which is withheld until the release is confirmed: the last frame, or after a stream the sign that
    /// no frame follows. If the release is not confirmed, the body ends in an error. Responses without a body, and upgrades,
    /// release before the head. A slow reader keeps the lock, for at most the longest hold.
    ///
    /// **With HTTP/1.0, a body of unknown length cannot end in an error.** The end of the connection is its end, so it looks
    /// complete although its lock was lost. Give the response a `Content-Length`, or let the proxy in front speak HTTP/1.1
    /// (`proxy_http_version 1.1` in nginx).
    BodyEnd,
}
