//! Locks in a Redis Cluster: each on the server that serves its slot.
//!
//! A command is sent again only if a server answered that it was not executed, or if it was never sent. The cluster connection of the
//! `redis` crate cannot be used (redis-rs 1.8, `cluster_handling/async_connection`):
//!
//! * It repeats a command after a broken connection, up to 16 times (`choose_response` in `request.rs`: `RetryMethod::Reconnect`), and
//!   an acquire must not be repeated without the caller's knowledge. `retries(0)` ends that, but also `MOVED`, `ASK` and `TRYAGAIN`.
//! * A refresh of the slots holds the lock of all connections while it pings every server (`refresh_slots`), so that one server that
//!   hangs delays the locks of all others.
//! * `ASKING` and its command are two messages, so that the command of another task may take the permission.
//! * If the server of a slot is down, it asks a replica or another server.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;

mod map;
mod redirect_loop;
mod topology;

use super::node::Node;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::redis::link::Purpose;
use crate::store::redis::link::wire::Wire;
use crate::store::redis::protocol::channels::Channels;
use crate::store::redis::protocol::failure::{self, refused, transient};
use crate::store::redis::protocol::names::share_a_slot;
use crate::store::redis::protocol::script::Call;
use crate::store::redis::protocol::slot::Slot;
use crate::store::{Feature, Unsupported, Wakeups};
use redirect_loop::RedirectLoop;
pub(crate) use topology::Cluster;

impl Cluster {
    /// Checks that the Cluster answers, and that one of its masters accepts locks.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let map = self.map().await?;
        let links = map.masters.iter().map(|node| node.first(Purpose::Commands));
        let mut opening: FuturesUnordered<_> = links.map(async |link| link.wire().await).collect();
        let mut failed = None;
        while let Some(opened) = opening.next().await {
            match opened {
                Ok(_) => return Ok(()),
                Err(error) => failed = Some(failure::more_telling(failed, error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every server that has slots, in the order of their addresses.
    pub(crate) async fn servers(self: &Arc<Self>) -> Result<Vec<(String, Arc<Node>)>, StoreError> {
        let map = self.map().await?;
        let servers = map.masters.iter();
        let servers = servers.map(|node| (node.address.to_string(), node.clone()));
        let mut servers: Vec<_> = servers.collect();
        servers.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(servers)
    }

    /// Calls a script on the server that has the key's slot. `call` gets the kind of channels of that server: one that does not know
    /// sharded channels would fail in the middle of a script.
    pub(crate) async fn call(
        self: &Arc<Self>,
        purpose: Purpose,
        key: &LockKey,
        call: impl Fn(Channels) -> Call,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
        let mut redirects = RedirectLoop::new(self, slot_of(key).map_err(refused)?).await?;
        loop {
            let target = redirects.next().await?;
            let connection = target.node.connection(purpose, key);
            let answered = match connection.channels().await {
                Ok(channels) => connection.answer(&call(channels), target.asking).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok((Value::ServerError(error), _)) => redirects.redirect(&target, error).await?,
                Ok(answered) => return Ok(answered),
                Err(error) => redirects.failure(&target, error).await?,
            }
        }
    }

    /// Subscribes to a channel of a key, on the server that has its slot. The subscription is over when the slot has another
    /// server: the former one ends it if the channel is sharded, and in any case the next map does.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        key: &LockKey,
        channel: String,
    ) -> Result<Wakeups, StoreError> {
        let slot = slot_of(key).map_err(refused)?;
        let mut redirects = RedirectLoop::new(self, slot).await?;
        loop {
            let target = redirects.next().await?;
            let subscriptions = &target.node.subscriptions;
            let listening = subscriptions.listen(channel.clone()).await;
            // A map that came before the subscription has not ended it.
            let map = self.known();
            let error = match listening {
                Ok(wakeups) if map.is_some_and(|map| map.is_master(slot, &target.node)) => {
                    return Ok(wakeups);
                }
                Ok(_) => transient("the slot has moved meanwhile"),
                Err(error) => error,
            };
            match redirects.failure(&target, error).await {
                // The server does not serve the slot any more, and the others do not know yet which one does.
                Err(error) if error.kind() == StoreErrorKind::Transient => {
                    redirects.backoff.pause().await;
                }
                taken_in => taken_in?,
            }
        }
    }

    /// The number of the server that has the slot, as far as this process knows: the first slot that the server has, which stays
    /// when a replica takes over.
    pub(crate) fn partition(&self, slot: Slot) -> u16 {
        self.known().map_or(0, |map| map.first_with(slot))
    }

    /// The server that has the key's slot, as far as this process knows.
    pub(crate) fn known_node(&self, key: &LockKey) -> Option<Arc<Node>> {
        let map = self.known()?;
        map.master(Slot::of(key.as_str())).cloned()
    }
}

/// The slot of all names of the key. Fails if they have different slots.
pub(super) fn slot_of(key: &LockKey) -> Result<Slot, Unsupported> {
    let unsupported = |reason| Unsupported::new(Feature::Key, reason);
    share_a_slot(key).map_err(unsupported)?;
    Ok(Slot::of(key.as_str()))
}
