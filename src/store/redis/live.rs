//! A connection that is up.

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::endpoint::RawConnection;
use crate::telemetry::store::ConnectionUp;

/// One connection, from the first answer on it to its end.
pub(super) struct Live {
    pub(super) raw: RawConnection,
    /// The number of this connection in its `SharedConnection`.
    pub(super) generation: u64,
    /// The number of its server, which rises when the connection leads to another server.
    pub(super) server: u64,
    given_up: watch::Sender<bool>,
    _up: ConnectionUp,
}

impl Live {
    pub(super) fn new(raw: RawConnection, generation: u64, server: u64, up: ConnectionUp) -> Self {
        Self {
            raw,
            generation,
            server,
            given_up: watch::Sender::new(false),
            _up: up,
        }
    }

    /// Sends commands on this connection.
    pub(super) fn handle(&self) -> MultiplexedConnection {
        self.raw.handle.clone()
    }

    /// Marks the connection as dead: commands without an answer fail.
    pub(super) fn give_up(&self) {
        self.given_up.send_replace(true);
    }

    /// Returns when the connection is given up.
    pub(super) async fn given_up(&self) {
        let mut given_up = self.given_up.subscribe();
        if given_up.wait_for(|given_up| *given_up).await.is_err() {
            std::future::pending().await
        }
    }
}
