//! Events for a dashboard.

use super::LockClient;
#[doc(inline)]
pub use crate::telemetry::{LockEvent, LockEventKind, LockEvents};

impl LockClient {
    /// Listens to what happens to the locks of this client: grants after a wait, refusals, losses, and locks that its
    /// [`LockAdmin`](crate::LockAdmin) breaks. For dashboards; the metrics count the same without names.
    ///
    /// A listener gets what happens from now on. Without a listener, events cost nothing, and a lock that is free at once makes none. The
    /// latest 1,024 events are kept for a slow listener, which learns how many it has missed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::client::LockEventKind;
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let mut events = locks.events();
    /// let guard = locks.lock("invoice:7").await?;
    /// assert!(locks.try_lock("invoice:7").await?.is_none());
    ///
    /// let event = events.next().await.expect("the client lives");
    /// assert_eq!(event.key.as_str(), "invoice:7");
    /// assert!(matches!(event.kind, LockEventKind::Refused { .. }));
    /// # guard.release().await
    /// # }
    /// ```
    pub fn events(&self) -> LockEvents {
        self.inner.core.events.listen()
    }
}
