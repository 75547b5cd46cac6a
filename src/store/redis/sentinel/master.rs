//! Where the master is, and when it is somewhere else.

use tokio::sync::watch;

/// Where the master is, as a sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Master {
    pub(super) host: String,
    pub(super) port: u16,
    /// Rises with every failover.
    pub(super) epoch: u64,
}

impl Master {
    pub(in super::super) fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// When a connection is to be left for another.
pub(in super::super) enum Departure {
    Never,
    /// When the master is not this one any more.
    From(Master, watch::Receiver<Option<Master>>),
}

impl Departure {
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(in super::super) async fn wait(&mut self) {
        if let Self::From(master, current) = self {
            let moved = |now: &Option<Master>| now.as_ref().is_some_and(|now| !now.is_at(master));
            if current.wait_for(moved).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }
}
