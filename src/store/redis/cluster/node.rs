//! One server of a Cluster, and how connections to it are made.

use std::sync::{Arc, OnceLock};

use deadpool_redis::PoolConfig;
use redis::{Client, ConnectionAddr, ConnectionInfo, Value};

use super::slots::{Address, Range, ranges};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::LockKey;
use crate::store::redis::channels::Channels;
use crate::store::redis::lane::{Lane, lane_of};
use crate::store::redis::options::{Timeouts, bad_address, new_pool};
use crate::store::redis::subscriptions::Subscriptions;

/// Makes [`Node`]s that are all connected to in the same way.
pub(in super::super) struct Maker {
    /// A seed: its credentials, protocol and TLS are those of every server.
    pub(in super::super) like: ConnectionInfo,
    pub(in super::super) timeouts: Timeouts,
    pub(in super::super) lanes: usize,
}

impl Maker {
    pub(super) fn make(&self, address: &Address) -> Result<Node, StoreError> {
        let info = self.like.clone().set_addr(self.at(address));
        let client = Client::open(info.clone()).map_err(bad_address)?;
        let pool = new_pool(info, PoolConfig::new(self.lanes), self.timeouts)?;
        Ok(Node {
            address: address.clone(),
            lanes: (0..self.lanes)
                .map(|_| Lane::new(pool.clone(), self.timeouts))
                .collect(),
            client,
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
    client: Client,
    timeouts: Timeouts,
    subscriptions: OnceLock<Subscriptions>,
}

impl Node {
    /// The connection that carries everything about this key.
    pub(super) fn lane(&self, key: &LockKey) -> &Arc<Lane> {
        &self.lanes[lane_of(key, self.lanes.len())]
    }

    /// The one connection that listens to what this server tells.
    pub(super) fn subscriptions(&self, channels: Channels) -> &Subscriptions {
        let (client, timeouts) = (&self.client, self.timeouts);
        self.subscriptions
            .get_or_init(|| Subscriptions::new(client.clone(), channels, timeouts))
    }

    /// Which slots are whose, as this server sees it.
    pub(super) async fn slots(&self) -> Result<Vec<Range>, StoreError> {
        let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let answer = self.lanes[0].query(&question).await?;
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
        let question = redis::cmd("PUBSUB").arg("SHARDNUMSUB").to_owned();
        match self.lanes[0].query(&question).await {
            Ok(Value::Array(_) | Value::Map(_)) => Ok(true),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == StoreErrorKind::Refused => Ok(false),
            Err(error) => Err(error),
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
