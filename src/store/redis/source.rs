//! Where connections come from.

use std::sync::Arc;

use deadpool::managed::Manager;
use deadpool_redis::{Connection, Pool, PoolConfig};
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo};

use super::failure::failing_over;
use super::pool::{bad_address, new_pool, no_connection};
use super::sentinel::{Departure, Sentinels};
use super::timeouts::Timeouts;
use super::{failure, tls};
use crate::error::{StoreError, StoreErrorKind};

/// Where connections for commands come from.
#[derive(Clone)]
pub(super) enum Source {
    /// Also by an address of the same server.
    Server(Pool, Box<Client>),
    /// The same server, by connections that the pool makes and does not count: each runs on the runtime that asked for it,
    /// never on one that used it before.
    Apart(Pool, Box<Client>),
    /// Whichever server the sentinels name as the master.
    Sentinels(Arc<Sentinels>),
}

/// Where the connection that listens comes from. It holds no pool: whoever still listens when the store is gone keeps none
/// of its connections.
#[derive(Clone)]
pub(super) enum Station {
    Server(Box<Client>),
    Sentinels(Arc<Sentinels>),
}

/// One server, to be connected to when that is first needed.
pub(super) fn server(
    address: ConnectionInfo,
    config: PoolConfig,
    timeouts: Timeouts,
) -> Result<(Source, Station), StoreError> {
    let client = client(address.clone())?;
    let pool = new_pool(address, config, timeouts)?;
    Ok((
        Source::Server(pool, client.clone()),
        Station::Server(client),
    ))
}

impl Source {
    /// How many connections there may be.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Server(pool, _) | Self::Apart(pool, _) => pool.status().max_size,
            Self::Sentinels(sentinels) => sentinels.room(),
        }
    }

    /// A connection, and when it is to be left for another.
    pub(super) async fn take(&self) -> Result<Taken, StoreError> {
        match self {
            Self::Server(pool, _) => {
                let connection = pool.get().await.map_err(no_connection)?;
                Ok(Taken::new(connection, Departure::Never))
            }
            Self::Apart(pool, _) => Ok(Taken {
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

    /// Why a connection that was just made is of no use.
    pub(super) async fn objection(&self, timeouts: Timeouts, error: StoreError) -> StoreError {
        match self {
            Self::Server(_, client) | Self::Apart(_, client) => {
                tls::objection(client.get_connection_info(), timeouts, error).await
            }
            // That server has answered already.
            Self::Sentinels(_) => error,
        }
    }

    /// Connecting took too long.
    pub(super) fn too_slow(&self) -> StoreError {
        match self {
            Self::Server(..) | Self::Apart(..) => too_slow(),
            Self::Sentinels(_) => failing_over(too_slow()),
        }
    }

    /// Ends what runs in the background.
    pub(super) fn close(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }
}

impl Station {
    /// Where to listen, and when that is to be left for another place.
    pub(super) async fn locate(&self) -> Result<(Client, Departure), StoreError> {
        match self {
            Self::Server(client) => Ok(((**client).clone(), Departure::Never)),
            Self::Sentinels(sentinels) => sentinels.listen().await,
        }
    }

    /// Connecting took too long.
    pub(super) fn too_slow(&self) -> StoreError {
        self.failed(too_slow())
    }

    /// What it means that there is no connection.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self {
            Self::Server(_) => error,
            Self::Sentinels(_) => failing_over(error),
        }
    }
}

/// A client of the server at `address`.
pub(super) fn client(address: ConnectionInfo) -> Result<Box<Client>, StoreError> {
    Client::open(address).map(Box::new).map_err(bad_address)
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

fn too_slow() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "connecting took too long")
}
