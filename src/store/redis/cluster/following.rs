//! A subscription that follows its slot from server to server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::map::Map;
use super::node::Node;
use super::topology::{Doubt, Topology};
use super::{TRIES, exhausted};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Wakeups;
use crate::store::redis::channels::Channels;
use crate::store::redis::slot::Slot;
use crate::store::redis::subscriptions::Listening;

/// The pause after the first failure to listen again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Listens to `channel`. When this answers, the server that has the slot has acknowledged it.
pub(super) async fn listen(
    topology: Arc<Topology>,
    channels: Channels,
    slot: Slot,
    channel: String,
) -> Result<Wakeups, StoreError> {
    let changes = topology.changes();
    let there = join(&topology, channels, slot, &channel).await?;
    let (signal, wakeups) = watch::channel(());
    let follower = Follower {
        topology: Arc::downgrade(&topology),
        changes,
        channels,
        slot,
        channel,
        signal,
    };
    let task = tokio::spawn(follower.follow(there));
    Ok(Wakeups::new(wakeups, Ended(task)))
}

/// Ends the task when nobody listens any more.
struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A subscription at one server.
struct There {
    /// Which may have been forgotten, and found again under the same address as another one.
    node: Weak<Node>,
    listening: Listening,
}

/// Listens at the server that has the slot.
async fn join(
    topology: &Arc<Topology>,
    channels: Channels,
    slot: Slot,
    channel: &str,
) -> Result<There, StoreError> {
    let mut map = topology.map().await?;
    for _ in 0..TRIES {
        let node;
        (map, node) = topology.master(map, slot).await?;
        let subscriptions = node.subscriptions(channels);
        let error = match subscriptions.join(channel.to_owned()).await {
            Ok(listening) => {
                let node = Arc::downgrade(&node);
                return Ok(There { node, listening });
            }
            Err(error) => node.named(error),
        };
        let doubt = Doubt::Failed(node.address.clone());
        match error.kind() {
            // The slot has moved, or the server is gone.
            StoreErrorKind::Transient | StoreErrorKind::Unreachable => {
                map = topology.newer(&map, doubt).await.map_err(|_| error)?;
            }
            // So it is if there is a stranger in its place.
            StoreErrorKind::Refused => match topology.newer(&map, doubt).await {
                Ok(newer) if !newer.is_master(slot, &node) => map = newer,
                _ => return Err(error),
            },
            _ => return Err(error),
        }
    }
    Err(exhausted(None))
}

struct Follower {
    topology: Weak<Topology>,
    changes: watch::Receiver<Option<Arc<Map>>>,
    channels: Channels,
    slot: Slot,
    channel: String,
    signal: watch::Sender<()>,
}

impl Follower {
    /// Passes wake-ups on, and listens elsewhere when the slot goes elsewhere.
    async fn follow(mut self, mut there: There) {
        loop {
            self.stay(&mut there).await;
            let Some(next) = self.go_on().await else {
                return;
            };
            there = next;
            // Messages may have been missed on the way.
            self.signal.send_replace(());
        }
    }

    /// Returns when this server does not tell any more what is to be heard.
    async fn stay(&mut self, there: &mut There) {
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
                    let is_there = |node| std::ptr::eq(Arc::as_ptr(node), there.node.as_ptr());
                    if changed.is_err() || !master.is_none_or(is_there) {
                        return;
                    }
                }
            }
        }
    }

    /// Listens at the server that has the slot now; `None` if the store is no more.
    async fn go_on(&self) -> Option<There> {
        let mut pause = FIRST_PAUSE;
        loop {
            let topology = self.topology.upgrade()?;
            match join(&topology, self.channels, self.slot, &self.channel).await {
                Ok(there) => return Some(there),
                Err(error) => tracing::debug!(%error, "could not listen where the slot went"),
            }
            drop(topology);
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
