//! Where connections come from.

use std::sync::Arc;

use deadpool_redis::{Connection, Pool, PoolError};
use redis::Client;

use super::failure;
use super::sentinel::{Departure, Sentinels};
use crate::error::{StoreError, StoreErrorKind};

/// What a store's connections lead to.
#[derive(Clone)]
pub(super) enum Source {
    /// One server: a pool for the commands, its address for the connection that listens.
    Server { pool: Pool, client: Box<Client> },
    /// Whichever server the sentinels name as the master.
    Sentinels(Arc<Sentinels>),
}

impl Source {
    /// How many connections for commands there may be.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Server { pool, .. } => pool.status().max_size,
            Self::Sentinels(sentinels) => sentinels.room(),
        }
    }

    /// A connection for commands, and when it is to be left for another.
    pub(super) async fn take(&self) -> Result<(Connection, Departure), StoreError> {
        match self {
            Self::Server { pool, .. } => {
                let connection = pool.get().await.map_err(no_connection)?;
                Ok((connection, Departure::Never))
            }
            Self::Sentinels(sentinels) => sentinels.take().await,
        }
    }

    /// Where to listen, and when that is to be left for another place.
    pub(super) async fn listen(&self) -> Result<(Client, Departure), StoreError> {
        match self {
            Self::Server { client, .. } => Ok(((**client).clone(), Departure::Never)),
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
            Self::Server { .. } => error,
            Self::Sentinels(_) => failing_over(error),
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
