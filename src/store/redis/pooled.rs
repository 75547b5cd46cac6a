//! New connections, and their permits in a pool of the caller's.

use super::endpoint::{Endpoint, RawConnection};
use super::failure;
use super::master::MasterChanged;
use crate::error::StoreError;
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
    /// `None` if no pool counts it.
    pub(super) place: Option<PoolPermit>,
    pub(super) master_changed: MasterChanged,
}

/// The permit of a connection in its pool. Dropping it returns the permit, and not the connection.
pub(super) struct PoolPermit(Option<deadpool_redis::Connection>);

impl Taken {
    /// A connection that no pool counts.
    pub(super) fn uncounted(raw: RawConnection) -> Self {
        Self {
            raw,
            place: None,
            master_changed: MasterChanged::Never,
        }
    }

    /// Opens a connection that no pool counts.
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, StoreError> {
        let raw = endpoint.open().await.map_err(failure::no_connection)?;
        Ok(Self::uncounted(raw))
    }
}

impl PoolPermit {
    pub(super) fn new(connection: deadpool_redis::Connection) -> Self {
        Self(Some(connection))
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        drop(self.0.take().map(deadpool_redis::Connection::take));
    }
}
