//! New connections, and their permits in a pool of the caller's.

use deadpool::managed::Manager;
use deadpool_redis::{Pool, PoolError};
use redis::aio::MultiplexedConnection;

use super::endpoint::{Endpoint, RawConnection};
use super::failure;
use super::master::MasterChanged;
use crate::error::StoreError;
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

/// A new connection.
pub(super) struct Taken {
    pub(super) raw: RawConnection,
    pub(super) master_changed: MasterChanged,
}

/// The permit of a shared connection in a pool of the caller's: `None` before the first connection. It stays when the
/// connection is replaced, so that the pool counts one connection all the time. Dropping it returns the permit, and not
/// the connection.
#[derive(Default)]
pub(super) struct PoolPermit(Mutex<Option<deadpool_redis::Connection>>);

impl Taken {
    /// A connection that is not given up because of another master.
    pub(super) fn unwatched(raw: RawConnection) -> Self {
        Self {
            raw,
            master_changed: MasterChanged::Never,
        }
    }

    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, StoreError> {
        let raw = endpoint.open().await.map_err(failure::no_connection)?;
        Ok(Self::unwatched(raw))
    }
}

impl PoolPermit {
    /// Opens a connection as the pool does, after the pool has given its permit.
    pub(super) async fn open(&self, pool: &Pool) -> Result<MultiplexedConnection, PoolError> {
        if self.0.lock().is_none() {
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
