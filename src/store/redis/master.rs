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
    pub(super) fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// The event that another server is the master, after which a connection is given up.
pub(super) enum MasterChanged {
    Never,
    /// The sentinels name another master than this one.
    From(Master, watch::Receiver<Option<Master>>),
}

impl MasterChanged {
    /// The master that the connection leads to; `None` without sentinels.
    pub(super) fn master(&self) -> Option<&Master> {
        match self {
            Self::Never => None,
            Self::From(master, _) => Some(master),
        }
    }

    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn wait(&mut self) {
        if let Self::From(master, current) = self {
            let moved = |now: &Option<Master>| now.as_ref().is_some_and(|now| !now.is_at(master));
            if current.wait_for(moved).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }
}
