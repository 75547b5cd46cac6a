//! Opens the connections to one server, or to the master that sentinels name.

use std::sync::Arc;

use deadpool::managed::Manager;
use deadpool_redis::{Pool, PoolError};
use redis::ConnectionAddr;

use super::endpoint::{Endpoint, RawConnection};
use super::failure::{self, failing_over, unreachable};
use super::master::MasterChanged;
use super::pooled::{PoolPermit, Purpose, Taken};
use super::role::Role;
use super::sentinel::SentinelGroup;
use crate::error::StoreError;

/// Makes connections to one server.
#[derive(Clone)]
pub(super) enum Connector {
    /// The server that has all keys.
    Server(Endpoint),
    /// A server of a Cluster.
    Node(Endpoint),
    /// The server that has all keys, by a pool of the caller's. The endpoint is for subscriptions.
    Given(Pool, Box<Endpoint>),
    /// The master that the sentinels name.
    Sentinels(Arc<SentinelGroup>),
}

impl Connector {
    /// The server, or the sentinels that name it.
    fn target(&self) -> Result<&Endpoint, &Arc<SentinelGroup>> {
        match self {
            Self::Server(endpoint) | Self::Node(endpoint) => Ok(endpoint),
            Self::Given(_, endpoint) => Ok(endpoint),
            Self::Sentinels(sentinels) => Err(sentinels),
        }
    }

    /// The address and the port of the server; `None` if sentinels name it.
    pub(super) fn server(&self) -> Option<(String, Option<u16>)> {
        match self.target().ok()?.address() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), Some(*port)))
            }
            ConnectionAddr::Unix(path) => Some((path.display().to_string(), None)),
            _ => None,
        }
    }

    /// Opens a connection, which the current runtime drives. A connection for renewals has the settings of the pool, and takes
    /// no permit of it. No other runtime has used the connection before.
    pub(super) async fn take(
        &self,
        purpose: Purpose,
        permit: &PoolPermit,
    ) -> Result<Taken, StoreError> {
        match (self, purpose) {
            (Self::Sentinels(sentinels), _) => sentinels.take().await,
            (Self::Server(server) | Self::Node(server), _) => Taken::open(server).await,
            (Self::Given(pool, _), Purpose::Commands) => {
                let handle = permit.open(pool).await.map_err(|error| match error {
                    PoolError::Backend(error) => failure::no_connection(error),
                    error => unreachable(error),
                })?;
                Ok(Taken::unwatched(RawConnection::given(handle)))
            }
            (Self::Given(pool, _), Purpose::Renewals) => {
                let handle = pool.manager().create().await;
                let handle = handle.map_err(failure::no_connection)?;
                Ok(Taken::unwatched(RawConnection::given(handle)))
            }
        }
    }

    /// The server for subscriptions, and the event that ends its use.
    pub(super) async fn locate(&self) -> Result<(Endpoint, MasterChanged), StoreError> {
        match self.target() {
            Ok(server) => Ok((server.clone(), MasterChanged::Never)),
            Err(sentinels) => sentinels.listen().await,
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
        match self.target() {
            Ok(server) => server.late_refusal(error).await,
            // The master that they name has answered already.
            Err(_) => error,
        }
    }

    /// The error kind of a failed connection.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self.target() {
            Ok(_) => error,
            Err(_) => failing_over(error),
        }
    }

    /// Ends the background tasks.
    pub(super) fn close(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }
}
