//! A connection that is up, and a mark on what was sent on it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::endpoint::RawConnection;
use crate::telemetry::store::Up;

/// One connection, from the first answer on it to its end.
pub(super) struct Live {
    pub(super) raw: RawConnection,
    /// Counts the connections that have replaced each other.
    pub(super) generation: u64,
    /// Counts the servers that they have led to.
    server: u64,
    given_up: watch::Sender<bool>,
    _up: Up,
}

impl Live {
    pub(super) fn new(raw: RawConnection, generation: u64, server: u64, up: Up) -> Self {
        Self {
            raw,
            generation,
            server,
            given_up: watch::Sender::new(false),
            _up: up,
        }
    }

    /// It is dead: what is not answered by now will not be.
    pub(super) fn give_up(&self) {
        self.given_up.send_replace(true);
    }

    /// Returns when it is given up.
    pub(super) async fn given_up(&self) {
        let mut given_up = self.given_up.subscribe();
        if given_up.wait_for(|given_up| *given_up).await.is_err() {
            std::future::pending().await
        }
    }
}

/// The connection that a command was answered on.
#[derive(Clone)]
pub(super) struct Sent(Arc<Live>);

impl Sent {
    pub(super) fn new(live: Arc<Live>) -> Self {
        Self(live)
    }

    /// For what is to follow it on the same connection.
    pub(super) fn handle(&self) -> MultiplexedConnection {
        self.0.raw.handle.clone()
    }

    pub(super) fn generation(&self) -> u64 {
        self.0.generation
    }

    pub(super) fn server(&self) -> u64 {
        self.0.server
    }

    /// Returns when the connection is given up.
    pub(super) async fn given_up(&self) {
        self.0.given_up().await;
    }
}
