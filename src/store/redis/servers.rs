//! Finds the server and the connection of a key.

use std::sync::Arc;

use redis::Value;

use super::link::Purpose;
use super::link::wire::Wire;
use super::protocol::channels::Channels;
use super::protocol::script::Call;
use super::protocol::slot::Slot;
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::store::{Unsupported, Wakeups};
use cluster::Cluster;
use node::Node;

pub(super) mod cluster;
pub(super) mod node;

/// The servers of the locks.
pub(super) enum Router {
    /// All locks on one server, or on the master that sentinels name.
    One(Arc<Node>),
    /// Each lock on the server that has its slot.
    Cluster(Arc<Cluster>),
}

impl Router {
    /// Connects, and checks that a server answers.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        match self {
            Self::One(node) => node.connect().await,
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Calls a script whose keys all belong to `key`, or to keys with the same number by [`together`](Self::together). Returns
    /// the connection on which it was answered. `call` gets the kind of channels of the key's server.
    pub(super) async fn call(
        &self,
        purpose: Purpose,
        key: &LockKey,
        call: impl Fn(Channels) -> Call,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
        match self {
            Self::One(node) => {
                let call = call(Channels::Plain);
                node.connection(purpose, key).call(&call).await
            }
            // Boxed, so that the future of a call to the only server is small.
            Self::Cluster(cluster) => Box::pin(cluster.call(purpose, key, call)).await,
        }
    }

    /// Keys with the same number may be in one script: keys of one connection, or of one slot. A command about a key is
    /// never overtaken by a later one about the same key.
    pub(super) fn together(&self, purpose: Purpose, key: &LockKey) -> usize {
        match self {
            Self::One(node) => node.together(purpose, key),
            Self::Cluster(_) => Slot::of(key.as_str()).number().into(),
        }
    }

    /// Keys with the same number may be in one script that asks for several of them.
    pub(super) fn slot(&self, key: &LockKey) -> Result<u16, Unsupported> {
        match self {
            Self::One(_) => Ok(0),
            Self::Cluster(_) => Ok(cluster::slot_of(key)?.number()),
        }
    }

    /// The address and the port of the only server; `None` if there are several, or sentinels name it.
    pub(super) fn server(&self) -> Option<(String, Option<u16>)> {
        match self {
            Self::One(node) => node.connector().server(),
            Self::Cluster(_) => None,
        }
    }

    /// Whether commands about the key can be sent at once, and renewals cannot.
    pub(super) fn lacks_renewals(&self, key: &LockKey) -> bool {
        self.known_node(key).is_some_and(|node| {
            let is_up = |purpose| node.connection(purpose, key).is_up();
            is_up(Purpose::Commands) && !is_up(Purpose::Renewals)
        })
    }

    /// Subscribes to a channel of `key`. Listeners of one channel share a subscription. When this returns, the server has
    /// acknowledged it.
    pub(super) async fn listen(
        &self,
        key: &LockKey,
        channel: String,
    ) -> Result<Wakeups, StoreError> {
        match self {
            Self::One(node) => node.subscriptions.listen(channel).await,
            Self::Cluster(cluster) => cluster.listen(key, channel).await,
        }
    }

    /// The server that has the key, as far as this process knows.
    pub(super) fn known_node(&self, key: &LockKey) -> Option<Arc<Node>> {
        match self {
            Self::One(node) => Some(node.clone()),
            Self::Cluster(cluster) => cluster.known_node(key),
        }
    }

    /// Every server that has locks, in the order of their names.
    pub(super) async fn servers(&self) -> Result<Vec<(String, Arc<Node>)>, StoreError> {
        match self {
            Self::One(node) => Ok(vec![(String::new(), node.clone())]),
            Self::Cluster(cluster) => cluster.servers().await,
        }
    }

    /// The partition of the key: the keys of one server. As each slot has its own script, the scripts of a partition go out
    /// together.
    pub(super) fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        match self {
            Self::One(_) => Ok(0),
            Self::Cluster(cluster) => Ok(cluster.partition(cluster::slot_of(key)?)),
        }
    }
}
