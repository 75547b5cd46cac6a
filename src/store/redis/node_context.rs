//! What the connections of a node share.

use std::sync::Arc;

use super::channels::ChannelKind;
use super::connector::Connector;
use super::replicas::Acknowledgement;
use super::thread::ConnectionThread;
use super::timeouts::Timeouts;
use super::waits::SharedWaits;
use crate::sync::Mutex;

/// What the connections of one [`Node`](super::node::Node) share: where they lead, their settings and their probes.
pub(super) struct NodeContext {
    pub(super) connector: Connector,
    pub(super) settings: ConnectionSettings,
    pub(super) waits: Arc<SharedWaits>,
    /// One probe for each connection. The mutex protects the list, to which probes are only added.
    probes: Mutex<Vec<Probe>>,
}

/// The settings of connections.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    pub(super) timeouts: Timeouts,
    pub(super) acknowledgement: Acknowledgement,
    pub(super) background: Arc<ConnectionThread>,
    /// The kind of channels. A store in a Cluster asks the servers when it is first needed, unless the builder sets it.
    pub(super) channels: Arc<ChannelKind>,
}

type Probe = Box<dyn Fn() + Send>;

impl NodeContext {
    pub(super) fn new(connector: Connector, settings: ConnectionSettings) -> Arc<Self> {
        Arc::new(Self {
            connector,
            waits: SharedWaits::new(settings.acknowledgement, settings.timeouts),
            settings,
            probes: Mutex::default(),
        })
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        self.settings.timeouts
    }

    /// `probe` begins to probe a connection, and does not wait for the result.
    pub(super) fn on_silence(&self, probe: impl Fn() + Send + 'static) {
        self.probes.lock().push(Box::new(probe));
    }

    /// Starts a probe of every connection, because one of them got no answer: the cause, such as a network that drops packets,
    /// may affect the others.
    pub(super) fn probe_all(&self) {
        for probe in self.probes.lock().iter() {
            probe();
        }
    }
}
