//! What the links to one server share.

use std::sync::Arc;

use tokio::sync::watch;

use super::connector::Connector;
use super::replicas::Replicas;
use super::thread::ConnectionThread;
use super::timeouts::Timeouts;
use super::waits::SharedWaits;
use crate::store::redis::protocol::channels::ChannelKind;

/// What the links to one server share: where they lead, and their settings.
pub(crate) struct LinkContext {
    pub(crate) connector: Connector,
    pub(crate) settings: LinkSettings,
    pub(crate) waits: Arc<SharedWaits>,
    /// A command got no answer in time: each link to the server probes its connection.
    pub(super) late: watch::Sender<()>,
}

/// The settings of links.
#[derive(Clone)]
pub(crate) struct LinkSettings {
    /// How many replicas must acknowledge a change.
    pub(crate) replicas: Replicas,
    pub(crate) background: Arc<ConnectionThread>,
    /// The kind of channels. A store in a Cluster asks the servers when it is first needed, unless the builder sets it.
    pub(crate) channels: Arc<ChannelKind>,
}

impl LinkContext {
    pub(crate) fn new(connector: Connector, settings: LinkSettings) -> Arc<Self> {
        Arc::new(Self {
            waits: SharedWaits::new(settings.replicas, connector.like().timeouts),
            connector,
            settings,
            late: watch::Sender::new(()),
        })
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.connector.like().timeouts
    }
}
