//! A TCP proxy with faults that a test controls.

// Found from wherever this file is included.
#[path = "proxy/direction.rs"]
mod direction;
#[path = "proxy/relay.rs"]
mod relay;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use self::direction::Direction;
use super::{RedisServer, ReservedPort};

/// A proxy between a client and a server, with one [`Direction`] per direction.
///
/// It has a thread of its own, so a test that blocks or drops its runtime does not stop it. A server that cannot be reached shows as a
/// connection that is accepted and reset.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// From the client to the server.
    pub(crate) requests: Arc<Direction>,
    /// From the server to the client: replies, and messages of subscriptions.
    pub(crate) replies: Arc<Direction>,
    url: String,
    port: u16,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// RST to both sides; bytes under way are lost.
    Reset,
    /// FIN to both sides; bytes under way are lost.
    Close,
    /// Neither side is notified: everything that is sent is lost.
    Silence,
}

#[derive(Debug, Default)]
struct Shared {
    /// The state that the test wants: whether connections are refused.
    refusing: watch::Sender<bool>,
    /// The actual state: `None` until the proxy has listened for the first time.
    listening: watch::Sender<Option<bool>>,
    connections: watch::Sender<Connections>,
    /// The number of cuts so far, with the last one's ending.
    cut: watch::Sender<(u64, Option<Ending>)>,
}

#[derive(Debug, Default)]
struct Connections {
    accepted: u64,
    open: BTreeSet<u64>,
}

impl Proxy {
    /// A proxy for `server`, found at [`url`](Self::url).
    pub(crate) async fn in_front_of(server: &RedisServer) -> Self {
        let port = ReservedPort::reserve().expect("a free port");
        let url = server.url_on(port.number());
        let upstream = SocketAddr::from(([127, 0, 0, 1], server.port()));
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("a runtime");
        let proxy = Self {
            requests: Arc::default(),
            replies: Arc::default(),
            url,
            port: port.number(),
            shared: Arc::default(),
            runtime: Some(runtime),
        };
        let door = Door {
            port,
            upstream,
            directions: (Arc::clone(&proxy.requests), Arc::clone(&proxy.replies)),
            shared: Arc::clone(&proxy.shared),
        };
        proxy
            .runtime
            .as_ref()
            .expect("just made")
            .spawn(door.attend());
        proxy.until_listening(true).await;
        proxy
    }

    /// The server's address through this proxy.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.borrow().open.len()
    }

    /// How many connections have been accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.connections.borrow().accepted
    }

    /// Delays both directions: a round trip takes twice as long as `delay`.
    pub(crate) fn delay(&self, delay: Duration) {
        self.requests.delay(delay);
        self.replies.delay(delay);
    }

    /// Ends every open connection, and returns how many there were. New ones are accepted as before.
    ///
    /// On return, both sides are notified, and nothing passes any more.
    pub(crate) async fn cut(&self, ending: Ending) -> usize {
        let (hit, last) = {
            let connections = self.shared.connections.borrow();
            (connections.open.len(), connections.accepted)
        };
        self.shared
            .cut
            .send_modify(|cut| *cut = (cut.0 + 1, Some(ending)));
        let mut connections = self.shared.connections.subscribe();
        let gone = |connections: &Connections| connections.open.iter().all(|id| *id > last);
        drop(connections.wait_for(gone).await);
        hit
    }

    /// From now on, loses everything that is sent on the open connections, and ends none of them. Returns how many there are. New
    /// ones are accepted as before.
    pub(crate) fn silence(&self) -> usize {
        let hit = self.connections();
        self.shared
            .cut
            .send_modify(|cut| *cut = (cut.0 + 1, Some(Ending::Silence)));
        hit
    }

    /// Refuses new connections, as if no server listened there. Open ones remain.
    pub(crate) async fn refuse(&self) {
        self.shared.refusing.send_replace(true);
        self.until_listening(false).await;
    }

    /// Accepts new connections again.
    pub(crate) async fn accept(&self) {
        self.shared.refusing.send_replace(false);
        self.until_listening(true).await;
    }

    async fn until_listening(&self, wanted: bool) {
        let mut listening = self.shared.listening.subscribe();
        drop(
            listening
                .wait_for(|listening| *listening == Some(wanted))
                .await,
        );
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The listener of the proxy.
struct Door {
    port: ReservedPort,
    upstream: SocketAddr,
    directions: (Arc<Direction>, Arc<Direction>),
    shared: Arc<Shared>,
}

impl Door {
    async fn attend(self) {
        let mut refusing = self.shared.refusing.subscribe();
        loop {
            let listener = self.port.listen().expect("the port is reserved");
            self.shared.listening.send_replace(Some(true));
            loop {
                tokio::select! {
                    biased;
                    _ = refusing.wait_for(|refusing| *refusing) => break,
                    Ok((client, _)) = listener.accept() => self.admit(client),
                }
            }
            ReservedPort::close(listener);
            self.shared.listening.send_replace(Some(false));
            drop(refusing.wait_for(|refusing| !*refusing).await);
        }
    }

    fn admit(&self, client: TcpStream) {
        let shared = Arc::clone(&self.shared);
        let (requests, replies) = self.directions.clone();
        let upstream = self.upstream;
        // Counted and subscribed before the task runs, so that a cut that happens now affects this connection.
        let cut = shared.cut.subscribe();
        let mut id = 0;
        shared.connections.send_modify(|connections| {
            connections.accepted += 1;
            id = connections.accepted;
            connections.open.insert(id);
        });
        tokio::spawn(async move {
            relay::run(client, upstream, (&requests, &replies), cut).await;
            shared.connections.send_modify(|connections| {
                connections.open.remove(&id);
            });
        });
    }
}

#[cfg(test)]
#[path = "proxy/tests.rs"]
mod tests;
