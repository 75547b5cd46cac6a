//! What a layer does when something is not as it should be: the choices that users make.

/// What becomes of a handler whose lock is lost while it runs. Either way its response is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// Its future is dropped at once, and the client gets the answer.
    #[default]
    Abort,
    /// It runs on and may ask [`LockHandle::lost`](crate::LockHandle::lost); the client gets the answer afterwards.
    Continue,
}

/// What becomes of a handler whose client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCancel {
    /// It is dropped with the request, and the lock is released.
    #[default]
    Drop,
    /// From the grant on it runs in a task of its own, to its end, and the lock is held until then. For work that must
    /// not be cut in half by a webhook sender that hangs up. A request that still waits for its lock goes with its client.
    RunToCompletion,
}

/// What becomes of a request when the store cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUnavailable {
    /// It is answered 503.
    #[default]
    Reject,
    /// It goes on **without a lock**. [`LockHandle`](crate::LockHandle) is absent then.
    Proceed,
}

/// What becomes of a request that carries no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// It is answered 400.
    #[default]
    Reject,
    /// It goes on **without a lock**: whoever leaves the key out is excluded by nobody.
    Skip,
    /// All such requests share this name.
    Use(&'static str),
}

/// How sure a response is that the lock was held until the end of the request.
///
/// | the store says | `Store` | `Strict` | `Deadline` |
/// |---|---|---|---|
/// | held until now | response | response | not asked: response if the deadline has not passed |
/// | not held any more | 500 `lock-lost` | 500 `lock-lost` | |
/// | nothing, for a second, or that too few replicas know | response if the deadline has not passed | 500 `lock-lost` | |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Confirm {
    /// The store is asked; only when it does not answer, this process's clock decides.
    #[default]
    Store,
    /// No response without the store's word: then confirmed requests never overlap, whatever any clock does (S5).
    Strict,
    /// This process's clock decides, and the release runs behind the response. Saves the round trip.
    Deadline,
}

/// When a request's lock is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleaseOn {
    /// Before the head of the response goes out; the body streams unlocked.
    #[default]
    Head,
    /// At the end of the body, whose last frame is withheld until the release is confirmed; without that the body ends
    /// in an error. Responses that have no body release before the head, and so do upgrades. A connection whose reader
    /// is slow holds the lock, for at most the longest hold.
    BodyEnd,
}
