//! New connections, and their permits in pools.

use deadpool::managed::{Object, Pool};

use super::endpoint::{Endpoint, RawConnection, no_connection};
use super::failure;
use super::master::MasterChanged;
use crate::error::StoreError;
use crate::telemetry;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// `None` if no pool counts it.
    pub(super) place: Option<PoolPermit>,
    pub(super) master_changed: MasterChanged,
}

/// The permit of a connection in its pool. Dropping it returns the permit, and not the connection.
pub(super) enum PoolPermit {
    Ours(Option<Object<Endpoint>>),
    Given(Option<deadpool_redis::Connection>),
}

/// Opens a connection by a pool of this crate.
pub(super) async fn take(pool: &Pool<Endpoint>, purpose: Purpose) -> Result<Taken, StoreError> {
    match purpose {
        Purpose::Commands => {
            let connection = pool.get().await.map_err(no_connection)?;
            Ok(Taken {
                raw: connection.clone(),
                place: Some(PoolPermit::Ours(Some(connection))),
                master_changed: MasterChanged::Never,
            })
        }
        Purpose::Renewals => {
            let raw = pool.manager().open().await;
            Ok(Taken::uncounted(raw.map_err(failure::no_connection)?))
        }
    }
}

impl Taken {
    pub(super) fn uncounted(raw: RawConnection) -> Self {
        Self {
            raw,
            place: None,
            master_changed: MasterChanged::Never,
        }
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        match self {
            Self::Ours(connection) => drop(connection.take().map(Object::take)),
            Self::Given(connection) => {
                drop(connection.take().map(deadpool_redis::Connection::take));
            }
        }
    }
}
