//! One server, with all its connections.

use std::slice;
use std::sync::Arc;

use crate::error::StoreError;
use crate::lock::LockKey;
use crate::store::redis::link::address::Address;
use crate::store::redis::link::connector::Connector;
use crate::store::redis::link::context::{LinkContext, LinkSettings};
use crate::store::redis::link::{Link, Purpose};
use crate::store::redis::listen::Subscriptions;
use crate::store::redis::protocol::rights;
use crate::store::redis::protocol::script::Call;

/// How many connections share the commands of callers. One is nearly as fast, and more than two add nothing.
const CONNECTIONS: usize = 2;

/// One server, or the master that sentinels name. It connects on first use. Dropping it ends its connections.
pub(crate) struct Node {
    /// In a Cluster, its address there.
    pub(crate) address: Address,
    context: Arc<LinkContext>,
    commands: [Arc<Link>; CONNECTIONS],
    /// Carries renewals only. The store's thread drives it.
    renewals: Arc<Link>,
    pub(crate) subscriptions: Arc<Subscriptions>,
}

impl Node {
    pub(crate) fn new(address: Address, connector: Connector, settings: LinkSettings) -> Self {
        let context = LinkContext::new(connector, settings);
        let connection = |purpose| Link::new(&context, purpose, None);
        Self {
            address,
            commands: [Purpose::Commands; CONNECTIONS].map(connection),
            renewals: connection(Purpose::Renewals),
            subscriptions: Subscriptions::new(&context),
            context,
        }
    }

    /// Connects, and checks that the server answers and accepts locks.
    pub(crate) async fn connect(&self) -> Result<(), StoreError> {
        for connection in &self.commands {
            connection.connect().await?;
        }
        Ok(())
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.context.connector
    }

    /// The connection for all commands about this key.
    pub(crate) fn connection(&self, purpose: Purpose, key: &LockKey) -> &Arc<Link> {
        &self.connections(purpose)[self.together(purpose, key)]
    }

    /// Asks which rights its user lacks.
    pub(crate) fn rights(&self) -> Call {
        rights::question(self.context.settings.channels)
    }

    /// A connection for commands about the server itself.
    pub(crate) fn first(&self, purpose: Purpose) -> &Arc<Link> {
        &self.connections(purpose)[0]
    }

    /// Keys with the same number have the same connection.
    pub(crate) fn together(&self, purpose: Purpose, key: &LockKey) -> usize {
        key.place_among(self.connections(purpose).len())
    }

    /// The connections of one purpose.
    pub(super) fn connections(&self, purpose: Purpose) -> &[Arc<Link>] {
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
