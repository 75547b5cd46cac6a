//! What the links to one server share.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;

use super::connector::Connector;
use super::thread::ConnectionThread;
use super::timeouts::Timeouts;
use crate::store::redis::protocol::channels::Channels;
use crate::sync::Mutex;

/// What the links to one server share: where they lead, and their settings.
pub(crate) struct LinkContext {
    pub(crate) connector: Connector,
    pub(crate) settings: LinkSettings,
    /// A command got no answer in time: each link to the server probes its connection.
    pub(super) late: watch::Sender<()>,
    /// The kind of channels, as far as it is known. Protected by the mutex alone. Each new connection sets it, unless the settings do: the
    /// server may have been upgraded.
    channels: Mutex<Option<Channels>>,
}

/// The settings of links.
#[derive(Clone)]
pub(crate) struct LinkSettings {
    /// How many replicas must acknowledge a change.
    pub(crate) replicas: usize,
    pub(crate) background: Arc<ConnectionThread>,
    /// The kind of channels; `None`: each server's version decides.
    pub(crate) channels: Option<Channels>,
}

impl LinkContext {
    pub(crate) fn new(connector: Connector, settings: LinkSettings) -> Arc<Self> {
        Arc::new(Self {
            channels: Mutex::new(settings.channels),
            connector,
            settings,
            late: watch::Sender::new(()),
        })
    }

    /// The kind of channels; `None` before the first connection, unless the settings name it.
    pub(crate) fn channels(&self) -> Option<Channels> {
        *self.channels.lock()
    }

    /// Takes in the answer to `HELLO` on a new connection.
    pub(super) fn take_in(&self, hello: &Value) {
        if self.settings.channels.is_none() {
            *self.channels.lock() = Some(Channels::of(hello));
        }
    }

    /// How much longer an answer may take, because the `WAIT` of another caller comes first.
    pub(super) fn delay(&self) -> Duration {
        match self.settings.replicas {
            0 => Duration::ZERO,
            _ => self.timeouts().replicas,
        }
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.connector.like().timeouts
    }
}
