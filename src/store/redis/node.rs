//! One server, with all its connections.

use std::slice;
use std::sync::{Arc, OnceLock};

use super::channels::Channels;
use super::connection::SharedConnection;
use super::connector::Connector;
use super::node_context::{ConnectionSettings, NodeContext};
use super::pooled::Purpose;
use super::slot::Slot;
use super::subscriptions::Subscriptions;
use super::wake_up_check;
use crate::error::StoreError;
use crate::lock::LockKey;

/// One server, or the master that sentinels name. It connects on first use. Dropping it ends its connections.
pub(super) struct Node {
    context: Arc<NodeContext>,
    /// At least one.
    commands: Box<[Arc<SharedConnection>]>,
    /// Carries renewals only. The store's thread drives it.
    renewals: Arc<SharedConnection>,
    /// Made with the first subscription, which decides on the kind of channels.
    pubsub: OnceLock<Arc<Subscriptions>>,
}

impl Node {
    pub(super) fn new(
        connector: Connector,
        connections: usize,
        settings: ConnectionSettings,
    ) -> Self {
        let context = NodeContext::new(connector, settings);
        let connection = |purpose| SharedConnection::new(&context, purpose, None);
        Self {
            commands: (0..connections.max(1))
                .map(|_| connection(Purpose::Commands))
                .collect(),
            renewals: connection(Purpose::Renewals),
            pubsub: OnceLock::new(),
            context,
        }
    }

    /// Connects, and checks that the server answers and accepts locks.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        for connection in &self.commands {
            connection.connect().await?;
        }
        if let Connector::Server(endpoint, Some(_)) = self.connector() {
            let server = Connector::Server(endpoint.clone(), None);
            let subscriptions = Self::new(server, 1, self.context.settings.clone());
            wake_up_check::warn(&self.commands[0], subscriptions.pubsub(Channels::Plain)).await;
        }
        Ok(())
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.context.connector
    }

    /// The connection for all commands about this key.
    pub(super) fn connection(&self, purpose: Purpose, key: &LockKey) -> &Arc<SharedConnection> {
        &self.connections(purpose)[self.together(purpose, key)]
    }

    /// A connection for commands about the server itself.
    pub(super) fn first(&self, purpose: Purpose) -> &Arc<SharedConnection> {
        &self.connections(purpose)[0]
    }

    /// Keys with the same number have the same connection.
    pub(super) fn together(&self, purpose: Purpose, key: &LockKey) -> usize {
        key.place_among(self.connections(purpose).len())
    }

    /// The connections of one purpose.
    pub(super) fn connections(&self, purpose: Purpose) -> &[Arc<SharedConnection>] {
        match purpose {
            Purpose::Commands => &self.commands,
            Purpose::Renewals => slice::from_ref(&self.renewals),
        }
    }

    /// The connection for subscriptions. The first caller decides on the kind of channels.
    pub(super) fn pubsub(&self, channels: Channels) -> &Arc<Subscriptions> {
        let context = &self.context;
        self.pubsub
            .get_or_init(|| Subscriptions::new(context, channels))
    }

    /// Wakes the listeners of this store on a channel.
    pub(super) fn wake(&self, channel: &str) {
        if let Some(pubsub) = self.pubsub.get() {
            pubsub.wake(channel);
        }
    }

    /// Ends the subscriptions to the channels of slots that this server does not have.
    pub(super) fn end_subscriptions_but(&self, has: impl Fn(Slot) -> bool) {
        if let Some(pubsub) = self.pubsub.get() {
            pubsub.end_all_but(has);
        }
    }

    /// The number of listeners of this store on a channel.
    pub(super) fn listeners(&self, channel: &str) -> usize {
        let pubsub = self.pubsub.get();
        pubsub.map_or(0, |pubsub| pubsub.listeners(channel))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for connection in self.commands.iter().chain([&self.renewals]) {
            connection.close();
        }
        if let Some(pubsub) = self.pubsub.get() {
            pubsub.close();
        }
    }
}
