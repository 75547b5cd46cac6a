//! One server of a Cluster, and how connections to it are made.

use std::sync::{Arc, OnceLock};

use deadpool_redis::PoolConfig;
use redis::{ConnectionAddr, ConnectionInfo, Value};

use super::slots::{Address, Range, ranges};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::redis::channels::Channels;
use crate::store::redis::failure;
use crate::store::redis::lane::Lane;
use crate::store::redis::replicas::Acknowledgement;
use crate::store::redis::source::{Station, server};
use crate::store::redis::subscriptions::Subscriptions;
use crate::store::redis::timeouts::Timeouts;
use crate::store::redis::tls;

/// Makes [`Node`]s that are all connected to in the same way.
pub(in super::super) struct Maker {
    /// A seed: its credentials, protocol and TLS are those of every server.
    pub(in super::super) like: ConnectionInfo,
    pub(in super::super) timeouts: Timeouts,
    pub(in super::super) lanes: usize,
    pub(in super::super) acknowledgement: Acknowledgement,
}

impl Maker {
    pub(super) fn make(&self, address: &Address) -> Result<Node, StoreError> {
        let info = self.like.clone().set_addr(self.at(address));
        let (source, station) = server(info, PoolConfig::new(self.lanes), self.timeouts)?;
        let lane = |_| Lane::new(source.clone(), self.timeouts, self.acknowledgement);
        Ok(Node {
            address: address.clone(),
            lanes: (0..self.lanes).map(lane).collect(),
            station,
            timeouts: self.timeouts,
            subscriptions: OnceLock::new(),
        })
    }

    fn at(&self, Address { host, port }: &Address) -> ConnectionAddr {
        match self.like.addr().clone() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host: host.to_string(),
                port: *port,
                insecure,
                tls_params,
            },
            _ => ConnectionAddr::Tcp(host.to_string(), *port),
        }
    }
}

/// One server. It connects when it is first used; dropping it ends its connections.
pub(super) struct Node {
    pub(super) address: Address,
    lanes: Box<[Arc<Lane>]>,
    station: Station,
    timeouts: Timeouts,
    subscriptions: OnceLock<Subscriptions>,
}

impl Node {
    /// The connection that carries everything about this key.
    pub(super) fn lane(&self, key: &LockKey) -> &Arc<Lane> {
        &self.lanes[key.place_among(self.lanes.len())]
    }

    /// A connection for what is about the server itself.
    pub(super) fn first_lane(&self) -> &Arc<Lane> {
        &self.lanes[0]
    }

    /// The one connection that listens to what this server tells.
    pub(super) fn subscriptions(&self, channels: Channels) -> &Subscriptions {
        let (station, timeouts) = (&self.station, self.timeouts);
        self.subscriptions
            .get_or_init(|| Subscriptions::new(station.clone(), channels, timeouts))
    }

    /// Why there is no connection to this server, if its name matters for that.
    pub(super) fn named(&self, error: StoreError) -> StoreError {
        tls::at(&format_args!("{:?}", self.address), error)
    }

    async fn query(&self, command: &str, word: &str) -> Result<Value, StoreError> {
        let question = redis::cmd(command).arg(word).to_owned();
        let answer = self.lanes[0].query(&question).await;
        answer.map_err(|error| self.named(error))
    }

    /// Which slots are whose, as this server sees it.
    pub(super) async fn slots(&self) -> Result<Vec<Range>, StoreError> {
        let answer = match self.query("CLUSTER", "SLOTS").await? {
            Value::ServerError(error) => return Err(failure::refusal(error)),
            answer => answer,
        };
        let ranges = ranges(&answer, &self.address).unwrap_or_default();
        if ranges.is_empty() {
            return Err(StoreError::new(
                StoreErrorKind::Transient,
                format!("{:?} knows of no slots", self.address),
            ));
        }
        Ok(ranges)
    }

    /// Whether the server knows sharded channels, as Redisson asks it (PROTOCOL 1.9).
    pub(super) async fn shards_channels(&self) -> Result<bool, StoreError> {
        match self.query("PUBSUB", "SHARDNUMSUB").await? {
            // It may know them, and the others may use them: that is for the caller to decide.
            Value::ServerError(error) if error.code() == "NOPERM" => Err(failure::refusal(error)),
            Value::ServerError(_) => Ok(false),
            _ => Ok(true),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.close();
        }
    }
}
