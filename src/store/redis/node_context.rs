//! What the connections of a node share.

use std::sync::Arc;

use tokio::sync::watch;

use super::connector::Connector;
use super::protocol::channels::ChannelKind;
use super::replicas::Replicas;
use super::thread::ConnectionThread;
use super::timeouts::Timeouts;
use super::waits::SharedWaits;

/// What the connections of one [`Node`](super::node::Node) share: where they lead, and their settings.
pub(super) struct NodeContext {
    pub(super) connector: Connector,
    pub(super) settings: ConnectionSettings,
    pub(super) waits: Arc<SharedWaits>,
    /// A command got no answer in time: each link to the server probes its connection.
    pub(super) late: watch::Sender<()>,
}

/// The settings of connections.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    /// How many replicas must acknowledge a change.
    pub(super) replicas: Replicas,
    pub(super) background: Arc<ConnectionThread>,
    /// The kind of channels. A store in a Cluster asks the servers when it is first needed, unless the builder sets it.
    pub(super) channels: Arc<ChannelKind>,
}

impl NodeContext {
    pub(super) fn new(connector: Connector, settings: ConnectionSettings) -> Arc<Self> {
        Arc::new(Self {
            waits: SharedWaits::new(settings.replicas, connector.like().timeouts),
            connector,
            settings,
            late: watch::Sender::new(()),
        })
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        self.connector.like().timeouts
    }
}
