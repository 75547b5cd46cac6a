//! How long a request waits.

use std::time::Duration;

use http::request::Parts;

/// Decides how long a request waits for its lock.
///
/// Implemented by [`Duration`], and by closures over `&Parts`:
///
/// ```
/// # use http::request::Parts;
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
/// # let locks = LockClient::new(MemoryStore::new());
/// use std::time::Duration;
///
/// DistributedLockLayer::new(locks).wait(|parts: &Parts| match parts.headers.contains_key("x-batch") {
///     true => Duration::from_secs(30),
///     false => Duration::from_secs(2),
/// })
/// # ;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how long a request waits",
    note = "use a `Duration`, or a closure `|parts: &Parts| …` that returns one"
)]
pub trait WaitPolicy: Send + Sync + 'static {
    /// The longest wait of this request; zero: one attempt.
    fn wait(&self, parts: &Parts) -> Duration;
}

impl WaitPolicy for Duration {
    fn wait(&self, _: &Parts) -> Duration {
        *self
    }
}

impl<F: Fn(&Parts) -> Duration + Send + Sync + 'static> WaitPolicy for F {
    fn wait(&self, parts: &Parts) -> Duration {
        self(parts)
    }
}
