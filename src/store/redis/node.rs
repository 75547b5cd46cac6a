//! One server, with all its connections.

use std::error::Error;
use std::slice;
use std::sync::Arc;

use tokio::time::timeout;

use super::connection::SharedConnection;
use super::connector::Connector;
use super::failure::{self, unreachable};
use super::names::Names;
use super::node_context::{ConnectionSettings, NodeContext};
use super::pooled::Purpose;
use super::rights::SCRATCH;
use super::subscriptions::Subscriptions;
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::telemetry;

/// One server, or the master that sentinels name. It connects on first use. Dropping it ends its connections.
pub(super) struct Node {
    context: Arc<NodeContext>,
    /// At least one.
    commands: Box<[Arc<SharedConnection>]>,
    /// Carries renewals only. The store's thread drives it.
    renewals: Arc<SharedConnection>,
    pub(super) subscriptions: Arc<Subscriptions>,
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
            subscriptions: Subscriptions::new(&context),
            context,
        }
    }

    /// Connects, and checks that the server answers and accepts locks, and that its messages arrive.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        for connection in &self.commands {
            connection.connect().await?;
        }
        if let Connector::Server(endpoint, Some(_)) = self.connector() {
            let server = Connector::Server(endpoint.clone(), None);
            let listening = Self::new(server, 1, self.context.settings.clone());
            warn_if_deaf(&self.commands[0], &listening.subscriptions).await;
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
}

impl Drop for Node {
    fn drop(&mut self) {
        for connection in self.commands.iter().chain([&self.renewals]) {
            connection.close();
        }
        self.subscriptions.close();
    }
}

/// Warns if a message that is published on `connection` does not reach `subscriptions`: the target of a pool's connections is
/// unknown, so the address for subscriptions may be that of another server.
async fn warn_if_deaf(connection: &Arc<SharedConnection>, subscriptions: &Arc<Subscriptions>) {
    if let Err(error) = message_arrives(connection, subscriptions).await {
        telemetry::store::failed(telemetry::store::WAKE_UPS);
        tracing::warn!(
            %error,
            reason = error.source().map(tracing::field::display),
            "no wake-up arrives at the address for subscriptions of `RedisStore::from_pool`: waiters find out by asking again",
        );
    }
}

async fn message_arrives(
    connection: &Arc<SharedConnection>,
    subscriptions: &Arc<Subscriptions>,
) -> Result<(), StoreError> {
    // The documented rights allow this channel, and no lock has its name.
    let scratch = LockKey::new(SCRATCH);
    let channel = Names::of(&scratch).channel().to_string();
    let mut heard = subscriptions.listen(channel.clone()).await?;
    let publish = redis::cmd("PUBLISH").arg(&channel).arg("0").to_owned();
    failure::accepted(connection.query(&publish).await?)?;
    match timeout(subscriptions.context.timeouts().response, heard.wait()).await {
        Ok(true) => Ok(()),
        _ => Err(unreachable(
            "a message that the pool's server was given does not arrive: it is another server",
        )),
    }
}
