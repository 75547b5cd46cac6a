//! A connection that is up.

use redis::aio::MultiplexedConnection;
use tokio_util::sync::CancellationToken;

use super::endpoint::RawConnection;
use crate::telemetry::store::ConnectionUp;

/// One connection, from the first answer on it to its end.
pub(super) struct Live {
    pub(super) raw: RawConnection,
    /// The number of this connection in its `SharedConnection`.
    pub(super) generation: u64,
    /// The number of its server, which rises when the connection leads to another server.
    pub(super) server: u64,
    /// Cancelled when the connection is given up as dead: commands without an answer fail.
    pub(super) given_up: CancellationToken,
    _up: ConnectionUp,
}

impl Live {
    pub(super) fn new(raw: RawConnection, generation: u64, server: u64, up: ConnectionUp) -> Self {
        Self {
            raw,
            generation,
            server,
            given_up: CancellationToken::new(),
            _up: up,
        }
    }

    /// Sends commands on this connection.
    pub(super) fn handle(&self) -> MultiplexedConnection {
        self.raw.handle.clone()
    }
}
