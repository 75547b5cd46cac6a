//! The master that sentinels name, and its changes.

use tokio::sync::watch;

/// The master's address, as a sentinel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) host: String,
    pub(super) port: u16,
    /// Rises with every failover.
    pub(super) epoch: u64,
}

impl Master {
    pub(super) fn address(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }

    pub(super) fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// The master that a connection leads to, and what the sentinels name since.
pub(super) struct FollowedMaster {
    pub(super) master: Master,
    current: watch::Receiver<Option<Master>>,
}

impl FollowedMaster {
    /// `None` if `current` is another server.
    pub(super) fn new(master: Master, current: watch::Receiver<Option<Master>>) -> Option<Self> {
        let is_current = current
            .borrow()
            .as_ref()
            .is_some_and(|now| now.is_at(&master));
        is_current.then_some(Self { master, current })
    }

    /// Returns when the sentinels name another server; `false` if the store has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn replaced(&mut self) -> bool {
        self.current.changed().await.is_ok()
    }
}
