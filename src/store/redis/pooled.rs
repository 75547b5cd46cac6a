//! What connections are for, and their permits in a pool of the caller's.

use deadpool::managed::Manager;
use deadpool_redis::{Pool, PoolError};
use redis::RedisError;
use redis::aio::MultiplexedConnection;

use super::{failure, tls};
use crate::error::StoreError;
use crate::sync::Mutex;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The commands of callers. Their runtime drives the connection.
    Commands,
    /// Renewals, and questions about the slots of a Cluster. The store's thread drives the connection, so that these continue while
    /// the callers' runtime is busy.
    Renewals,
}

/// The permit of a shared connection in a pool of the caller's. It stays when the connection is replaced, so that the pool counts
/// one connection all the time. Dropping it returns the permit, and not the connection.
///
/// The mutex protects the pool's object: `None` before the first connection, and later one whose handle is exchanged. It is never
/// held across an await.
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
        pool.manager().create().await.map_err(PoolError::Backend)
    }

    /// Takes in the handle of the connection that is used from here on, so that the former one ends.
    pub(super) fn keep(&self, handle: &MultiplexedConnection) {
        if let Some(connection) = &mut *self.0.lock() {
            **connection = handle.clone();
        }
    }
}

/// Why the pool gave no connection.
pub(super) fn unavailable(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failed(error),
        error => failure::unreachable(error),
    }
}

/// The error for a connection of a pool, whose server has no known name.
pub(super) fn failed(error: RedisError) -> StoreError {
    let refusal = tls::tls_refusal(&error, &"the server of the pool");
    refusal.unwrap_or_else(|| failure::no_connection(error))
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        let connection = self.0.lock().take();
        drop(connection.map(deadpool_redis::Connection::take));
    }
}
