//! Where the connections to one server, or to the master of a name, come from.

use std::sync::Arc;

use deadpool::managed::{Manager, Pool};

use super::endpoint::{Endpoint, RawConnection, no_connection};
use super::failure::{self, failing_over};
use super::master::MasterChanged;
use super::pooled::{self, Place, Purpose, Taken};
use super::role::Role;
use super::sentinel::SentinelGroup;
use crate::error::{StoreError, StoreErrorKind};

/// Makes connections to one server.
#[derive(Clone)]
pub(super) enum Connector {
    /// The one that has all keys.
    Server(Pool<Endpoint>),
    /// One of a Cluster.
    Node(Pool<Endpoint>),
    /// The same as the first, by a pool of the caller's; the endpoint is where to listen.
    Given(deadpool_redis::Pool, Box<Endpoint>),
    /// The master that the sentinels name.
    Sentinels(Arc<SentinelGroup>),
}

impl Connector {
    /// How many connections there may be for commands.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Server(pool) | Self::Node(pool) => pool.status().max_size,
            Self::Given(pool, _) => pool.status().max_size,
            Self::Sentinels(sentinels) => sentinels.room(),
        }
    }

    /// A new connection, which this runtime drives. One for renewals is made as those in the pool are, and not counted
    /// there: nor is one driven by a runtime that used it before.
    pub(super) async fn take(&self, purpose: Purpose) -> Result<Taken, StoreError> {
        match (self, purpose) {
            (Self::Sentinels(sentinels), _) => sentinels.take(purpose).await,
            (Self::Server(pool) | Self::Node(pool), _) => pooled::take(pool, purpose).await,
            (Self::Given(pool, _), Purpose::Commands) => {
                let connection = pool.get().await.map_err(no_connection)?;
                Ok(Taken {
                    raw: RawConnection::given((*connection).clone()),
                    place: Some(Place::Given(Some(connection))),
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

    /// Where to listen, and when that is to be left for another place.
    pub(super) async fn locate(&self) -> Result<(Endpoint, MasterChanged), StoreError> {
        match self {
            Self::Server(pool) | Self::Node(pool) => {
                Ok((pool.manager().clone(), MasterChanged::Never))
            }
            Self::Given(_, endpoint) => Ok(((**endpoint).clone(), MasterChanged::Never)),
            Self::Sentinels(sentinels) => sentinels.listen().await,
        }
    }

    /// Refuses a server that is not what this one is made for.
    pub(super) fn expect(&self, role: Role) -> Result<(), StoreError> {
        match self {
            Self::Server(_) | Self::Given(..) => role.has_every_key(),
            // A node that serves no slot says so, and a master has said that it is one.
            Self::Node(_) | Self::Sentinels(_) => Ok(()),
        }
    }

    /// Why a connection that was just made is of no use.
    pub(super) async fn objection(&self, error: StoreError) -> StoreError {
        match self {
            Self::Server(pool) | Self::Node(pool) => pool.manager().objection(error).await,
            Self::Given(_, endpoint) => endpoint.objection(error).await,
            // That server has answered already.
            Self::Sentinels(_) => error,
        }
    }

    /// Connecting took too long.
    pub(super) fn too_slow(&self) -> StoreError {
        let error = "connecting took too long";
        self.failed(StoreError::new(StoreErrorKind::Unreachable, error))
    }

    /// What it means that there is no connection.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self {
            Self::Sentinels(_) => failing_over(error),
            Self::Server(_) | Self::Node(_) | Self::Given(..) => error,
        }
    }

    /// Ends what runs in the background.
    pub(super) fn close(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }
}
