//! What connections are for, and their permits in a pool of the caller's.

use deadpool::managed::Manager;
use deadpool_redis::{Pool, PoolError};
use redis::aio::MultiplexedConnection;

use crate::sync::Mutex;
use crate::telemetry;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The commands of callers. Their runtime drives the connection.
    Commands,
    /// Renewals only. The store's thread drives the connection, so that renewals continue while the callers' runtime
    /// is busy.
    Renewals,
}

impl Purpose {
    /// The name in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Commands => telemetry::store::COMMANDS,
            Self::Renewals => telemetry::store::RENEWALS,
        }
    }
}

/// The permit of a shared connection in a pool of the caller's: `None` before the first connection. It stays when the
/// connection is replaced, so that the pool counts one connection all the time. Dropping it returns the permit, and not
/// the connection.
#[derive(Default)]
pub(super) struct PoolPermit(Mutex<Option<deadpool_redis::Connection>>);

impl PoolPermit {
    /// Opens a connection as the pool does. One for commands needs the pool's permit; one for renewals needs none, and no
    /// other runtime has used it before.
    pub(super) async fn open(
        &self,
        pool: &Pool,
        purpose: Purpose,
    ) -> Result<MultiplexedConnection, PoolError> {
        if purpose == Purpose::Commands && self.0.lock().is_none() {
            let connection = pool.get().await?;
            let handle = connection.clone();
            *self.0.lock() = Some(connection);
            return Ok(handle);
        }
        let handle = pool.manager().create().await?;
        // So that the former connection ends.
        if let Some(connection) = &mut *self.0.lock() {
            **connection = handle.clone();
        }
        Ok(handle)
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        drop(
            self.0
                .get_mut()
                .take()
                .map(deadpool_redis::Connection::take),
        );
    }
}
