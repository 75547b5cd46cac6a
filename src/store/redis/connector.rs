//! Opens the connections to one server, or to the master that sentinels name.

use std::sync::Arc;

use deadpool::managed::{Manager, Pool};
use redis::ConnectionAddr;

use super::endpoint::{Endpoint, RawConnection, no_connection};
use super::failure::{self, failing_over};
use super::master::MasterChanged;
use super::pooled::{self, PoolPermit, Purpose, Taken};
use super::role::Role;
use super::sentinel::SentinelGroup;
use crate::error::{StoreError, StoreErrorKind};

/// Makes connections to one server.
#[derive(Clone)]
pub(super) enum Connector {
    /// The server that has all keys.
    Server(Pool<Endpoint>),
    /// A server of a Cluster.
    Node(Pool<Endpoint>),
    /// The server that has all keys, by a pool of the caller's. The endpoint is for subscriptions.
    Given(deadpool_redis::Pool, Box<Endpoint>),
    /// The master that the sentinels name.
    Sentinels(Arc<SentinelGroup>),
}

impl Connector {
    /// The address and the port of the server; `None` if sentinels name it.
    pub(super) fn server(&self) -> Option<(String, Option<u16>)> {
        let address = match self {
            Self::Server(pool) | Self::Node(pool) => pool.manager().address(),
            Self::Given(_, endpoint) => endpoint.address(),
            Self::Sentinels(_) => return None,
        };
        match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), Some(*port)))
            }
            ConnectionAddr::Unix(path) => Some((path.display().to_string(), None)),
            _ => None,
        }
    }

    /// The largest number of connections for commands.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Server(pool) | Self::Node(pool) => pool.status().max_size,
            Self::Given(pool, _) => pool.status().max_size,
            Self::Sentinels(sentinels) => sentinels.room(),
        }
    }

    /// Opens a connection, which the current runtime drives. A connection for renewals has the settings of the pool, and takes
    /// no permit of it. No other runtime has used the connection before.
    pub(super) async fn take(&self, purpose: Purpose) -> Result<Taken, StoreError> {
        match (self, purpose) {
            (Self::Sentinels(sentinels), _) => sentinels.take(purpose).await,
            (Self::Server(pool) | Self::Node(pool), _) => pooled::take(pool, purpose).await,
            (Self::Given(pool, _), Purpose::Commands) => {
                let connection = pool.get().await.map_err(no_connection)?;
                Ok(Taken {
                    raw: RawConnection::given((*connection).clone()),
                    place: Some(PoolPermit::Given(Some(connection))),
                    master_changed: MasterChanged::Never,
                })
            }
            (Self::Given(pool, _), Purpose::Renewals) => {
                let handle = pool.manager().create().await;
                let handle = handle.map_err(failure::no_connection)?;
                Ok(Taken::uncounted(RawConnection::given(handle)))
            }
        }
    }

    /// The server for subscriptions, and the event that ends its use.
    pub(super) async fn locate(&self) -> Result<(Endpoint, MasterChanged), StoreError> {
        match self {
            Self::Server(pool) | Self::Node(pool) => {
                Ok((pool.manager().clone(), MasterChanged::Never))
            }
            Self::Given(_, endpoint) => Ok(((**endpoint).clone(), MasterChanged::Never)),
            Self::Sentinels(sentinels) => sentinels.listen().await,
        }
    }

    /// Refuses a server of the wrong kind.
    pub(super) fn expect(&self, role: Role) -> Result<(), StoreError> {
        match self {
            Self::Server(_) | Self::Given(..) => role.has_every_key(),
            // A node without slots says so in its answers, and the sentinels' master has already confirmed its role.
            Self::Node(_) | Self::Sentinels(_) => Ok(()),
        }
    }

    /// Why a new connection cannot be used.
    pub(super) async fn late_refusal(&self, error: StoreError) -> StoreError {
        match self {
            Self::Server(pool) | Self::Node(pool) => pool.manager().late_refusal(error).await,
            Self::Given(_, endpoint) => endpoint.late_refusal(error).await,
            // This server has answered already.
            Self::Sentinels(_) => error,
        }
    }

    /// The error after the time limit for connecting.
    pub(super) fn too_slow(&self) -> StoreError {
        let error = "connecting took too long";
        self.failed(StoreError::new(StoreErrorKind::Unreachable, error))
    }

    /// The error kind of a failed connection.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self {
            Self::Sentinels(_) => failing_over(error),
            Self::Server(_) | Self::Node(_) | Self::Given(..) => error,
        }
    }

    /// Ends the background tasks.
    pub(super) fn close(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }
}
