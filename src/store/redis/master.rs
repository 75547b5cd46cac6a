//! Where the master is, and when it is somewhere else.

use tokio::sync::watch;

/// Where the master is, as a sentinel says.
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

/// When a connection is to be left, because another server is the master.
pub(super) enum MasterChanged {
    Never,
    /// When the sentinels name another one than this.
    From(Master, watch::Receiver<Option<Master>>),
}

impl MasterChanged {
    /// The master that the connection leads to, if sentinels have named it.
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
