//! One server of a Cluster, and its connections.

use std::sync::Arc;

use redis::Value;

use super::slots::{Address, Range, ranges};
use crate::error::StoreError;
use crate::store::redis::connector::Connector;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::failure::{self, transient};
use crate::store::redis::node::Node;
use crate::store::redis::node_context::ConnectionSettings;
use crate::store::redis::pooled::Purpose;

/// Makes [`Member`]s with the same connection settings.
pub(in super::super) struct MemberFactory {
    /// A seed address. Its credentials, protocol and TLS settings apply to every server.
    pub(in super::super) like: Endpoint,
    pub(in super::super) connections: usize,
    pub(in super::super) settings: ConnectionSettings,
}

impl MemberFactory {
    pub(super) fn make(&self, address: &Address) -> Member {
        let server = Connector::Node(self.like.at(&address.host, address.port));
        Member {
            address: address.clone(),
            node: Arc::new(Node::new(server, self.connections, self.settings.clone())),
        }
    }
}

/// One server of a Cluster.
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) node: Arc<Node>,
}

impl Member {
    async fn query(
        &self,
        purpose: Purpose,
        command: &str,
        word: &str,
    ) -> Result<Value, StoreError> {
        let question = redis::cmd(command).arg(word).to_owned();
        self.node.first(purpose).query(&question).await
    }

    /// Asks this server which server has which slots.
    pub(super) async fn slots(&self, purpose: Purpose) -> Result<Vec<Range>, StoreError> {
        let answer = failure::accepted(self.query(purpose, "CLUSTER", "SLOTS").await?)?;
        let none = || format!("{:?} knows of no slots", self.address);
        ranges(&answer, &self.address)
            .filter(|ranges| !ranges.is_empty())
            .ok_or_else(|| transient(none()))
    }

    /// Whether the server knows sharded channels. It asks in the same way as Redisson (PROTOCOL
    /// 1.9).
    pub(super) async fn shards_channels(&self) -> Result<bool, StoreError> {
        let answer = self.query(Purpose::Commands, "PUBSUB", "SHARDNUMSUB");
        match answer.await? {
            // The server may know them, and other clients may use them. The caller decides.
            Value::ServerError(error) if error.code() == "NOPERM" => Err(failure::refusal(error)),
            Value::ServerError(_) => Ok(false),
            _ => Ok(true),
        }
    }
}
