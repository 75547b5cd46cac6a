//! The server of a group of connections, or the sentinels that name it.

use redis::ConnectionAddr;

use super::endpoint::Endpoint;
use super::sentinel::{FollowedMaster, WatchedSentinels};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::protocol::failure::{refused, transient};
use crate::store::redis::protocol::role::Role;

/// Where connections lead.
pub(crate) enum Connector {
    /// The server that has all keys.
    Server(Endpoint),
    /// A server of a Cluster.
    Node(Endpoint),
    /// The master that the sentinels name.
    Sentinels(WatchedSentinels),
}

impl Connector {
    /// The address and the port of the server; `None` if sentinels name it.
    pub(crate) fn server(&self) -> Option<(String, Option<u16>)> {
        let (Self::Server(endpoint) | Self::Node(endpoint)) = self else {
            return None;
        };
        match endpoint.address() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), Some(*port)))
            }
            ConnectionAddr::Unix(path) => Some((path.display().to_string(), None)),
            _ => None,
        }
    }

    /// The settings with which replicas of the server are asked; the host and the port are not those of the server.
    pub(crate) fn like(&self) -> &Endpoint {
        match self {
            Self::Server(server) | Self::Node(server) => server,
            Self::Sentinels(sentinels) => &sentinels.group.server,
        }
    }

    /// The server; behind sentinels, also which master it is.
    pub(super) async fn locate(&self) -> Result<(Endpoint, Option<FollowedMaster>), StoreError> {
        match self {
            Self::Server(server) | Self::Node(server) => Ok((server.clone(), None)),
            Self::Sentinels(sentinels) => {
                let (server, master) = sentinels.locate().await?;
                Ok((server, Some(master)))
            }
        }
    }

    /// Refuses a server of the wrong kind. A role of `None` means that the server does not know the question, as a proxy may not:
    /// it is refused behind sentinels only. A replica may be promoted, and refuses commands until then: `or_replica` accepts it, unless
    /// sentinels name another server then.
    pub(crate) fn expect(&self, role: Option<Role>, or_replica: bool) -> Result<(), StoreError> {
        match (self, role) {
            (Self::Sentinels(_), Some(Role::Master)) => Ok(()),
            // A former master would continue to grant locks.
            (Self::Sentinels(_), None) => Err(refused(
                "the server that the sentinels name does not answer `HELLO` with its role: remove `rename-command HELLO` from its configuration",
            )),
            (Self::Sentinels(_), _) => Err(transient(
                "the server that the sentinels name is not a master now",
            )),
            // A node without slots says so in its answers.
            (Self::Node(_), _) | (_, None) => Ok(()),
            (_, Some(Role::Replica)) if or_replica => Ok(()),
            (_, Some(role)) => role.has_every_key(),
        }
    }

    /// The error for a server that could not be used. Sentinels replace a master that cannot be reached, so its failure is
    /// transient.
    pub(crate) fn failed(&self, error: StoreError) -> StoreError {
        match (self, error.kind()) {
            (Self::Sentinels(_), StoreErrorKind::Unreachable) => transient(error),
            _ => error,
        }
    }
}
