//! A subscription that follows its slot when the slot moves to another server.

use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::member::Member;
use super::redirect_loop::RedirectLoop;
use super::slot_map::SlotMap;
use super::topology::Topology;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Wakeups;
use crate::store::redis::channels::Channels;
use crate::store::redis::pooled::Purpose;
use crate::store::redis::slot::Slot;
use crate::store::redis::subscriptions::Listening;
use crate::store::redis::timeouts::RECONNECT;

/// Subscribes to `channel`. When this returns, the server that has the slot has acknowledged the
/// subscription.
pub(super) async fn listen(
    topology: Arc<Topology>,
    channels: Channels,
    slot: Slot,
    channel: String,
) -> Result<Wakeups, StoreError> {
    let changes = topology.changes();
    let there = join(&topology, channels, slot, &channel).await?;
    let (signal, wakeups) = watch::channel(());
    let subscription = SlotSubscription {
        topology: Arc::downgrade(&topology),
        closed: topology.closed.clone(),
        changes,
        channels,
        slot,
        channel,
        signal,
    };
    let task = tokio::spawn(subscription.follow(there));
    Ok(Wakeups::new(wakeups, AbortOnDropHandle::new(task)))
}

/// A subscription at one server.
struct Attached {
    /// Weak: the topology may have forgotten this server, and may have made another `Member` for
    /// the same address.
    member: Weak<Member>,
    listening: Listening,
}

/// Subscribes at the server that has the slot.
async fn join(
    topology: &Arc<Topology>,
    channels: Channels,
    slot: Slot,
    channel: &str,
) -> Result<Attached, StoreError> {
    let mut redirects = RedirectLoop::new(topology, Purpose::Commands, slot).await?;
    loop {
        let target = redirects.next().await?;
        let pubsub = target.member.node.pubsub(channels);
        let error = match pubsub.join(channel.to_owned()).await {
            Ok(listening) => {
                let member = Arc::downgrade(&target.member);
                return Ok(Attached { member, listening });
            }
            Err(error) => error,
        };
        match redirects.failure(&target, error).await {
            // The server does not serve the slot any more, and the others do not know yet which one does.
            Err(error) if error.kind() == StoreErrorKind::Transient => {}
            taken_in => taken_in?,
        }
    }
}

struct SlotSubscription {
    topology: Weak<Topology>,
    /// Cancelled when the store is dropped.
    closed: CancellationToken,
    changes: watch::Receiver<Option<Arc<SlotMap>>>,
    channels: Channels,
    slot: Slot,
    channel: String,
    signal: watch::Sender<()>,
}

impl SlotSubscription {
    /// Forwards wake-ups, and subscribes at another server when the slot moves there.
    async fn follow(mut self, mut there: Attached) {
        loop {
            self.forward(&mut there).await;
            let Some(next) = self.reattach().await else {
                return;
            };
            there = next;
            // Messages may have been missed during the change.
            self.signal.send_replace(());
        }
    }

    /// Returns when this server does not deliver the channel's messages any more.
    async fn forward(&mut self, there: &mut Attached) {
        loop {
            tokio::select! {
                heard = there.listening.heard() => match heard {
                    Some(()) => {
                        self.signal.send_replace(());
                    }
                    None => return,
                },
                changed = self.changes.changed() => {
                    let map = self.changes.borrow_and_update().clone();
                    let master = map.as_ref().and_then(|map| map.master(self.slot));
                    let is_there = |member| std::ptr::eq(Arc::as_ptr(member), there.member.as_ptr());
                    if changed.is_err() || !master.is_none_or(is_there) {
                        return;
                    }
                }
            }
        }
    }

    /// Subscribes at the server that has the slot now; `None` if the store was dropped.
    async fn reattach(&self) -> Option<Attached> {
        let mut backoff = RECONNECT;
        loop {
            let topology = self.topology.upgrade()?;
            let joining = join(&topology, self.channels, self.slot, &self.channel);
            match self.closed.run_until_cancelled(joining).await? {
                Ok(there) => return Some(there),
                Err(error) => tracing::debug!(%error, "could not listen where the slot went"),
            }
            drop(topology);
            backoff.pause().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::IntoConnectionInfo;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::store::redis::cluster::member::MemberFactory;
    use crate::store::redis::cluster::slots::Address;
    use crate::store::redis::endpoint::Endpoint;
    use crate::store::redis::node_context::ConnectionSettings;
    use crate::store::redis::replicas::Acknowledgement;
    use crate::store::redis::timeouts::Timeouts;
    use crate::store::redis::tls::Tls;

    #[tokio::test]
    async fn a_server_that_hangs_is_not_waited_for_when_the_store_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("redis://127.0.0.1:{port}");
        let address = address.into_connection_info().unwrap();
        let tls = Tls::default().config([&address]).unwrap();
        let hour = Duration::from_secs(3600);
        let (connect, response) = (hour, hour);
        let timeouts = Timeouts { connect, response };
        let factory = MemberFactory {
            like: Endpoint::new(address, tls, timeouts),
            connections: 1,
            settings: ConnectionSettings {
                timeouts,
                acknowledgement: Acknowledgement::default(),
                background: Arc::default(),
            },
        };
        let seeds = vec![Address::new("127.0.0.1", port)];
        let topology = Arc::new(Topology::new(seeds, factory));
        let subscription = SlotSubscription {
            topology: Arc::downgrade(&topology),
            closed: topology.closed.clone(),
            changes: topology.changes(),
            channels: Channels::Sharded,
            slot: Slot::of(&"n".into()),
            channel: "c{n}".to_owned(),
            signal: watch::Sender::new(()),
        };
        let reattaching = tokio::spawn(async move { subscription.reattach().await.is_none() });
        let (mut asking, _) = listener.accept().await.unwrap();
        topology.close();
        drop(topology);
        let limit = Duration::from_secs(20);
        let ended = timeout(limit, reattaching).await;
        assert!(ended.expect("it still waits for the server").unwrap());
        let mut asked = Vec::new();
        let closed = timeout(limit, asking.read_to_end(&mut asked)).await;
        assert!(closed.is_ok(), "the question is still under way");
    }
}
