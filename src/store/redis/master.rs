//! The master that sentinels name, and its changes; the server that connections lead to.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::sync::Mutex;

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

/// A server that connections of a node lead to: what one of them learns of it holds for all.
pub(super) struct KnownServer {
    /// `None` if no sentinels name it.
    master: Option<Master>,
    /// Protects how many replicas must acknowledge a change: as many as followed last, and at least one if any ever did.
    needed: Mutex<usize>,
}

impl KnownServer {
    pub(super) fn needed(&self) -> usize {
        *self.needed.lock()
    }

    /// Takes in how many replicas follow the server now. Returns how many must acknowledge.
    pub(super) fn followed_by(&self, replicas: usize) -> usize {
        let mut needed = self.needed.lock();
        *needed = replicas.max((*needed).min(1));
        *needed
    }
}

/// The servers that the connections of a node lead to: one, or during a failover two.
#[derive(Default)]
pub(super) struct KnownServers(Mutex<Vec<Weak<KnownServer>>>);

impl KnownServers {
    /// The server at `master`. It is forgotten when no connection leads there any more.
    pub(super) fn at(&self, master: Option<&Master>) -> Arc<KnownServer> {
        let mut servers = self.0.lock();
        servers.retain(|server| server.strong_count() > 0);
        let mut known = servers.iter().filter_map(Weak::upgrade);
        let known = known.find(|server| match (&server.master, master) {
            (Some(one), Some(other)) => one.is_at(other),
            (one, other) => one.is_none() && other.is_none(),
        });
        known.unwrap_or_else(|| {
            let server = Arc::new(KnownServer {
                master: master.cloned(),
                needed: Mutex::default(),
            });
            servers.push(Arc::downgrade(&server));
            server
        })
    }
}
