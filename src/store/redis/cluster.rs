//! Locks in a Redis Cluster: each on the server that serves its slot.
//!
//! Commands are routed here, and not by the cluster connection of the `redis` crate, because that one sends a command
//! again when its connection broke: an acquire must never be sent twice unawares. Here a command is sent again only if a
//! server answered that it was not executed, or if it was never sent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{ServerError, Value};
use tokio::sync::OnceCell;
use tokio::time::sleep;

mod following;
mod map;
mod node;
mod redirect;
mod slots;
mod topology;

use super::channels::Channels;
use super::failure;
use super::lane::Lane;
use super::names::Names;
use super::script::Call;
use super::servers::Counting;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::LockKey;
use crate::store::Wakeups;
use map::Map;
pub(super) use node::Maker;
use node::Node;
use redirect::Redirect;
use slots::Address;
pub(super) use slots::{Slot, addresses, hash_tag};
use topology::{Doubt, Topology};

/// How often a command is sent, each time because the one before was not executed.
const TRIES: u32 = 8;

/// The pause before a command is sent again to a server that cannot serve it just now; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The servers of a Redis Cluster.
pub(super) struct Cluster {
    topology: Arc<Topology>,
    /// By which commands messages travel; found out when it is first needed, unless it was set.
    channels: OnceCell<Channels>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, maker: Maker, channels: Option<Channels>) -> Self {
        Self {
            topology: Arc::new(Topology::new(seeds, maker)),
            channels: OnceCell::new_with(channels),
        }
    }

    /// Makes sure that the Cluster answers.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        self.topology.map().await?;
        self.channels().await.map(drop)
    }

    /// By which commands messages travel.
    pub(super) async fn channels(&self) -> Result<Channels, StoreError> {
        let probe = || async {
            let map = self.topology.map().await?;
            let answers = map.masters().iter().map(|node| node.shards_channels());
            let answers = join_all(answers).await;
            let mut known = answers.iter().filter_map(|answer| answer.as_ref().ok());
            match (
                known.next(),
                answers.iter().find_map(|answer| answer.as_ref().err()),
            ) {
                (None, Some(error)) => Err(error.clone()),
                // One server that does not know the command would fail in the middle of a script. One that is down will be
                // like the others.
                (first, _) => Ok(
                    match first.into_iter().chain(known).all(|sharded| *sharded) {
                        true => Channels::Sharded,
                        false => Channels::Plain,
                    },
                ),
            }
        };
        self.channels.get_or_try_init(probe).await.copied()
    }

    /// A connection to each server that has slots.
    pub(super) async fn lanes(&self) -> Result<Vec<Arc<Lane>>, StoreError> {
        let map = self.topology.map().await?;
        let nodes = map.masters().iter();
        Ok(nodes.map(|node| node.first_lane().clone()).collect())
    }

    /// Calls a script on the server that has the key's slot, wherever that is.
    pub(super) async fn call(
        &self,
        key: &LockKey,
        call: &Call,
    ) -> Result<(Value, Counting), StoreError> {
        let slot = slot_of(key)?;
        let mut map = self.topology.map().await?;
        let mut detour = None;
        let mut pause = FIRST_PAUSE;
        let mut refusal = None;
        for _ in 0..TRIES {
            let (node, asking) = match detour.take() {
                Some(detour) => detour,
                None => {
                    let master;
                    (map, master) = self.topology.master(map, slot).await?;
                    (master, false)
                }
            };
            let lane = node.lane(key).clone();
            let error = match lane.answer(call, asking).await {
                Ok((Value::ServerError(error), _)) => error,
                Ok((answer, sent)) => return Ok((answer, Counting { lane, sent })),
                Err(error) => {
                    map = self.after_failure(map, slot, &node, error).await?;
                    continue;
                }
            };
            match Redirect::read(&error, &node.address) {
                Some(Redirect::Moved(address)) => {
                    map = self.newer(&map, Doubt::Moved(address.clone())).await?;
                    if map.is_master(slot, &node) {
                        detour = Some((self.topology.node(&address)?, false));
                    }
                }
                Some(Redirect::Ask(address)) => {
                    detour = Some((self.topology.node(&address)?, true));
                }
                Some(Redirect::Later) => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Some(Redirect::Elsewhere) => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    map = self
                        .newer(&map, Doubt::Failed(node.address.clone()))
                        .await?;
                }
                None => return Err(failure::refusal(error)),
            }
            refusal = Some(error);
        }
        Err(exhausted(refusal))
    }

    /// Listens to a channel about a key, on the server that has its slot, wherever that will be.
    pub(super) async fn listen(
        &self,
        key: &LockKey,
        channel: String,
    ) -> Result<Wakeups, StoreError> {
        let (slot, channels) = (slot_of(key)?, self.channels().await?);
        following::listen(self.topology.clone(), channels, slot, channel).await
    }

    /// How many listen to a channel about a key through this store, as far as it is known where that is.
    pub(super) fn listeners(&self, key: &LockKey, channel: &str) -> usize {
        let map = self.topology.known();
        let node = map.as_ref().and_then(|map| map.master(Slot::of(key)));
        match (node, self.channels.get()) {
            (Some(node), Some(channels)) => node.subscriptions(*channels).listeners(channel),
            _ => 0,
        }
    }

    /// A new map, if the command can be sent to another server instead.
    async fn after_failure(
        &self,
        map: Arc<Map>,
        slot: Slot,
        node: &Arc<Node>,
        error: StoreError,
    ) -> Result<Arc<Map>, StoreError> {
        let doubt = Doubt::Failed(node.address.clone());
        match error.kind() {
            StoreErrorKind::Unreachable => {
                let map = self.topology.newer(&map, doubt).await.map_err(|_| error)?;
                if map.is_master(slot, node) {
                    return Err(transient(
                        "the server of the key cannot be reached, and no other has taken over yet",
                    ));
                }
                Ok(map)
            }
            StoreErrorKind::Unanswered => {
                self.topology.doubt(&map, doubt);
                Err(error)
            }
            _ => Err(error),
        }
    }

    async fn newer(&self, seen: &Map, doubt: Doubt) -> Result<Arc<Map>, StoreError> {
        // The server that has just answered is there: it is the Cluster that cannot serve.
        let newer = self.topology.newer(seen, doubt).await;
        newer.map_err(|error| StoreError::new(StoreErrorKind::Transient, error))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.topology.close();
    }
}

/// Where everything about the key lives, if that is one place.
fn slot_of(key: &LockKey) -> Result<Slot, StoreError> {
    Names::of(key)
        .share_a_slot()
        .map_err(|why| StoreError::new(StoreErrorKind::Refused, why))?;
    Ok(Slot::of(key))
}

fn exhausted(refusal: Option<ServerError>) -> StoreError {
    match refusal {
        Some(error) => StoreError::new(StoreErrorKind::Transient, error),
        None => transient("the Cluster is being rearranged"),
    }
}

fn transient(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Transient, text)
}
