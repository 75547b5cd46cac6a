//! Where connections come from.

use std::sync::Arc;

use deadpool_redis::{Connection, Pool, PoolError};
use redis::Client;
use redis::aio::PubSub;

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

    /// A connection that listens, and when it is to be left for another.
    pub(super) async fn listen(&self) -> Result<(PubSub, Departure), StoreError> {
        match self {
            Self::Server { client, .. } => Ok((open(client).await?, Departure::Never)),
            Self::Sentinels(sentinels) => {
                let (client, departure) = sentinels.listen().await?;
                let pubsub = open(&client).await.map_err(failing_over)?;
                Ok((pubsub, departure))
            }
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
        let slow = StoreError::new(StoreErrorKind::Unreachable, "connecting took too long");
        match self {
            Self::Server { .. } => slow,
            Self::Sentinels(_) => failing_over(slow),
        }
    }
}

async fn open(client: &Client) -> Result<PubSub, StoreError> {
    let opening = client.get_async_pubsub();
    opening.await.map_err(failure::no_connection)
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
