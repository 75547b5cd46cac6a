//! Where connections come from.

use std::sync::Arc;

use deadpool::managed::Manager;
use deadpool_redis::{Connection, Pool, PoolError};
use redis::Client;
use redis::aio::MultiplexedConnection;

use super::failure;
use super::sentinel::{Departure, Sentinels};
use crate::error::{StoreError, StoreErrorKind};

/// What a store's connections lead to.
#[derive(Clone)]
pub(super) enum Source {
    /// One server: a pool for the commands, its address for the connection that listens.
    Server { pool: Pool, client: Box<Client> },
    /// The same server, by connections that the pool makes and does not count: each runs on the runtime that asked for it,
    /// never on one that used it before.
    Apart { pool: Pool, client: Box<Client> },
    /// Whichever server the sentinels name as the master.
    Sentinels(Arc<Sentinels>),
}

impl Source {
    /// How many connections for commands there may be.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Server { pool, .. } | Self::Apart { pool, .. } => pool.status().max_size,
            Self::Sentinels(sentinels) => sentinels.room(),
        }
    }

    /// A connection for commands, and when it is to be left for another.
    pub(super) async fn take(&self) -> Result<Taken, StoreError> {
        match self {
            Self::Server { pool, .. } => {
                let connection = pool.get().await.map_err(no_connection)?;
                Ok(Taken::new(connection, Departure::Never))
            }
            Self::Apart { pool, .. } => Ok(Taken {
                kept: None,
                handle: pool
                    .manager()
                    .create()
                    .await
                    .map_err(failure::no_connection)?,
                departure: Departure::Never,
            }),
            Self::Sentinels(sentinels) => {
                let (connection, departure) = sentinels.take().await?;
                Ok(Taken::new(connection, departure))
            }
        }
    }

    /// Where to listen, and when that is to be left for another place.
    pub(super) async fn listen(&self) -> Result<(Client, Departure), StoreError> {
        match self {
            Self::Server { client, .. } | Self::Apart { client, .. } => {
                Ok(((**client).clone(), Departure::Never))
            }
            Self::Sentinels(sentinels) => sentinels.listen().await,
        }
    }

    /// Ends what runs in the background.
    pub(super) fn close(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }

    /// Connecting took too long.
    pub(super) fn too_slow(&self) -> StoreError {
        self.failed(StoreError::new(
            StoreErrorKind::Unreachable,
            "connecting took too long",
        ))
    }

    /// What it means that a server could not be connected to.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self {
            Self::Server { .. } | Self::Apart { .. } => error,
            Self::Sentinels(_) => failing_over(error),
        }
    }
}

/// A connection for commands.
pub(super) struct Taken {
    /// Its place in the pool, if it has one.
    pub(super) kept: Option<Connection>,
    pub(super) handle: MultiplexedConnection,
    pub(super) departure: Departure,
}

impl Taken {
    fn new(connection: Connection, departure: Departure) -> Self {
        Self {
            handle: (*connection).clone(),
            kept: Some(connection),
            departure,
        }
    }
}

pub(super) fn no_connection(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failure::no_connection(error),
        error => StoreError::new(StoreErrorKind::Unreachable, error),
    }
}

/// A master that cannot be reached is about to be replaced, so it is worth asking again.
pub(super) fn failing_over(error: StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::Unreachable => StoreError::new(StoreErrorKind::Transient, error),
        _ => error,
    }
}
