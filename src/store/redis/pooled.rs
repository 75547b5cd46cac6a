//! New connections, and the places that they have in pools.

use deadpool::managed::{Object, Pool};

use super::endpoint::{Endpoint, RawConnection, no_connection};
use super::failure;
use super::master::MasterChanged;
use crate::error::StoreError;
use crate::telemetry;

/// What a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// What callers ask for. Their runtime drives it.
    Commands,
    /// Renewals and nothing else. The store's thread drives it, so that they go on while the callers' runtime is busy.
    Renewals,
}

impl Purpose {
    /// As metrics call it.
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
    pub(super) place: Option<Place>,
    pub(super) master_changed: MasterChanged,
}

/// The place of a connection in its pool. Dropping it gives the place back, and not the connection.
pub(super) enum Place {
    Ours(Option<Object<Endpoint>>),
    Given(Option<deadpool_redis::Connection>),
}

/// A connection by a pool of ours.
pub(super) async fn take(pool: &Pool<Endpoint>, purpose: Purpose) -> Result<Taken, StoreError> {
    match purpose {
        Purpose::Commands => {
            let connection = pool.get().await.map_err(no_connection)?;
            Ok(Taken {
                raw: connection.clone(),
                place: Some(Place::Ours(Some(connection))),
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

impl Drop for Place {
    fn drop(&mut self) {
        match self {
            Self::Ours(connection) => drop(connection.take().map(Object::take)),
            Self::Given(connection) => {
                drop(connection.take().map(deadpool_redis::Connection::take));
            }
        }
    }
}
