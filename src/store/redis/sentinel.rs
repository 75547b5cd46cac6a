//! Servers behind sentinels: finds the master, and notices when another server becomes the master.
//!
//! For every new connection, the store asks all sentinels at once, and takes the answer with the highest configuration epoch;
//! the first question on the connection is about the server's role. The store also asks the sentinels every second, so that
//! connections to a replaced master end even if that master still answers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::endpoint::{Endpoint, RawConnection};
use super::failure::transient;
use super::thread::ConnectionThread;
use crate::backoff::jittered;
use crate::error::StoreError;
use crate::telemetry;

mod health;
mod question;
mod reply;

use reply::SentinelReply;

/// How often the store asks the sentinels for the master; Redisson's interval.
const WATCH: Duration = Duration::from_secs(1);

/// The sentinels of a store, which are asked every [`WATCH`].
pub(super) struct WatchedSentinels {
    pub(super) group: Arc<SentinelGroup>,
    background: Arc<ConnectionThread>,
    /// The task that asks. It starts with the first connection. It ends with this, also while it waits for an answer, because it
    /// refers to the group only.
    watching: OnceLock<AbortOnDropHandle<()>>,
}

/// A connection to each sentinel, if there is one.
type Connections = Vec<Option<RawConnection>>;

/// The servers under one master name.
pub(super) struct SentinelGroup {
    sentinels: Box<[Endpoint]>,
    name: String,
    /// Credentials, database and encryption of the servers; host and port are ignored.
    server: Endpoint,
    current: watch::Sender<Option<Master>>,
}

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

    fn is_at(&self, other: &Self) -> bool {
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

    /// Whether the sentinels name another server by now.
    pub(super) fn is_replaced(&self) -> bool {
        self.current.has_changed().unwrap_or(true)
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

impl WatchedSentinels {
    pub(super) fn new(
        sentinels: impl Iterator<Item = Endpoint>,
        name: String,
        server: Endpoint,
        background: Arc<ConnectionThread>,
    ) -> Self {
        let group = SentinelGroup {
            sentinels: sentinels.collect(),
            name,
            server,
            current: watch::Sender::new(None),
        };
        Self {
            group: Arc::new(group),
            background,
            watching: OnceLock::new(),
        }
    }

    /// The master.
    pub(super) async fn locate(&self) -> Result<(Endpoint, FollowedMaster), StoreError> {
        let answer = self.group.ask(&mut self.group.no_connections()).await?;
        self.ensure_watching();
        self.group.take_in(&answer);
        let master = answer.master;
        let server = self.group.server.at(&master.host, master.port);
        let followed = FollowedMaster::new(master, self.group.current.subscribe());
        let known = || transient("the sentinels that answer know less than is known already");
        Ok((server, followed.ok_or_else(known)?))
    }

    fn ensure_watching(&self) {
        let watch = || self.background.spawn(watch(self.group.clone()));
        self.watching.get_or_init(watch);
    }
}

impl SentinelGroup {
    fn no_connections(&self) -> Connections {
        self.sentinels.iter().map(|_| None).collect()
    }

    /// Asks all sentinels, and takes the answer with the latest failover.
    async fn ask(&self, connections: &mut Connections) -> Result<SentinelReply, StoreError> {
        let asking = self.sentinels.iter().zip(connections);
        let asking = asking
            .map(|(sentinel, connection)| question::ask(sentinel, &self.name, connection))
            .collect();
        let known = || {
            self.current
                .borrow()
                .as_ref()
                .map_or(0, |known| known.epoch)
        };
        reply::gather(asking, known, self.server.timeouts.connect / 2, &self.name).await
    }

    /// Takes in the sentinels' answer, unless a minority names a former master: it may be cut off from the others. A majority
    /// is accepted with a lower epoch, because sentinels that were set up anew count from zero.
    fn take_in(&self, SentinelReply { master, by_most }: &SentinelReply) {
        self.current.send_if_modified(|current| {
            let known = current.as_ref();
            let believed = *by_most || known.is_none_or(|known| known.epoch <= master.epoch);
            let moved = known.is_none_or(|known| !known.is_at(master));
            if !believed || known == Some(master) {
                return false;
            }
            if moved && known.is_some() {
                let Master { host, port, .. } = master;
                tracing::warn!(
                    master = self.name,
                    host,
                    port,
                    "another server is the master"
                );
                telemetry::store::failed_over("sentinel");
            }
            *current = Some(master.clone());
            moved
        });
    }
}

/// Asks the sentinels every [`WATCH`], until the store is dropped.
async fn watch(sentinels: Arc<SentinelGroup>) {
    let mut connections = sentinels.no_connections();
    loop {
        sleep(jittered(WATCH)).await;
        // Without an answer, nothing changes: the master may still be up.
        if let Ok(answer) = sentinels.ask(&mut connections).await {
            sentinels.take_in(&answer);
        }
    }
}

fn detail(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::store::redis::timeouts::Timeouts;
    use crate::store::redis::tls::Tls;

    #[tokio::test]
    async fn a_sentinel_that_hangs_is_not_waited_for_when_the_store_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let address = address.into_connection_info().unwrap();
        let hour = Duration::from_secs(3600);
        let (connect, response) = (hour, hour);
        let tls = Tls::default().config([&address]).unwrap();
        let endpoint = Endpoint::new(address, tls, Timeouts { connect, response });
        let endpoints = [endpoint.clone()].into_iter();
        let thread = Arc::default();
        let store = WatchedSentinels::new(endpoints, "main".to_owned(), endpoint, thread);
        store.ensure_watching();
        let (mut asking, _) = listener.accept().await.unwrap();
        drop(store);
        let mut asked = Vec::new();
        let ended = timeout(10 * WATCH, asking.read_to_end(&mut asked)).await;
        assert!(ended.is_ok(), "the question is still under way");
    }
}
