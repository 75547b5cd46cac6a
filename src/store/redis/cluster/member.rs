//! One server of a Cluster, and its connections.

use std::sync::Arc;

use futures_util::future::try_join;
use redis::{FromRedisValue, Value};

use super::slots::{Address, Layout, ranges};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::connector::Connector;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::failure::{self, transient};
use crate::store::redis::link::Purpose;
use crate::store::redis::node::Node;
use crate::store::redis::node_context::ConnectionSettings;

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

    /// Asks this server which server has which slots. Callers cannot block the connection for renewals.
    pub(super) async fn slots(&self) -> Result<Layout, StoreError> {
        let slots = self.query(Purpose::Renewals, "CLUSTER", "SLOTS");
        let about = self.query(Purpose::Renewals, "CLUSTER", "INFO");
        let (answer, about) = try_join(slots, about).await?;
        let answer = failure::accepted(answer)?;
        let none = || format!("{:?} knows of no slots", self.address);
        let ranges = ranges(&answer, &self.address).filter(|ranges| !ranges.is_empty());
        let ranges = ranges.ok_or_else(|| transient(none()))?;
        Ok(Layout {
            ranges,
            epoch: epoch(&about),
        })
    }

    /// Whether the server knows sharded channels. It asks in the same way as Redisson (PROTOCOL
    /// 1.9).
    pub(super) async fn shards_channels(&self) -> Result<bool, StoreError> {
        let answer = self.query(Purpose::Commands, "PUBSUB", "SHARDNUMSUB");
        knows_the_command(answer.await?)
    }
}

/// The epoch in the answer to `CLUSTER INFO`: a server that is cut off from a failover, or does not know of it yet, names a lower
/// one. Zero if the user may not ask.
fn epoch(about: &Value) -> u64 {
    let text = String::from_redis_value_ref(about).unwrap_or_default();
    let epoch = text
        .lines()
        .find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    epoch
        .and_then(|epoch| epoch.trim().parse().ok())
        .unwrap_or(0)
}

/// Fails if the answer does not say it, as that of a server which is busy, or which forbids the command.
fn knows_the_command(answer: Value) -> Result<bool, StoreError> {
    let Value::ServerError(error) = answer else {
        return Ok(true);
    };
    let is_general = error.code() == "ERR";
    let refusal = failure::refusal(error);
    match refusal.kind() {
        StoreErrorKind::Refused if is_general => Ok(false),
        _ => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: &str) -> Value {
        let parsed = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
        parsed.expect("an answer of Redis")
    }

    #[test]
    fn only_a_server_that_does_not_know_the_command_has_no_sharded_channels() {
        for unknown in [
            "ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'. Try PUBSUB HELP.",
            "ERR unknown subcommand 'SHARDNUMSUB'. Try PUBSUB HELP.",
        ] {
            assert!(!knows_the_command(answer(unknown)).expect("it answers"));
        }
        for other in [
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
            "ERR max number of clients reached",
            "NOPERM User default has no permissions to run the 'pubsub|shardnumsub' command",
        ] {
            assert!(knows_the_command(answer(other)).is_err(), "{other}");
        }
        assert!(knows_the_command(Value::Array(Vec::new())).expect("it answers"));
    }
}
