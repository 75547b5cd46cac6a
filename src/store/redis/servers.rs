//! Which server serves a key, and by which connection it is asked.

use std::fmt;
use std::sync::Arc;

use redis::Value;

use super::channels::Channels;
use super::cluster::Cluster;
use super::lane::{Counting, Lane};
use super::names::Names;
use super::script::Call;
use super::slot::Slot;
use super::source::Source;
use super::subscriptions::Subscriptions;
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::store::Wakeups;

/// Where the locks are.
pub(super) enum Servers {
    /// All on one server.
    One(Server),
    /// Each on the server that has its slot.
    Cluster(Box<Cluster>),
}

/// One server that has all keys. Dropping it ends its connections.
pub(super) struct Server {
    pub(super) lanes: Box<[Arc<Lane>]>,
    pub(super) subscriptions: Subscriptions,
    pub(super) source: Source,
}

impl Servers {
    /// Connects, and makes sure that somebody answers.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        match self {
            Self::One(server) => {
                for lane in &server.lanes {
                    lane.connect().await?;
                }
                Ok(())
            }
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Whether commands can be sent at once, as far as is known.
    pub(super) fn are_up(&self) -> bool {
        match self {
            Self::One(server) => server.lanes.iter().all(|lane| lane.is_up()),
            Self::Cluster(_) => false,
        }
    }

    /// By which commands messages travel.
    pub(super) async fn channels(&self) -> Result<Channels, StoreError> {
        match self {
            Self::One(_) => Ok(Channels::Plain),
            Self::Cluster(cluster) => cluster.channels().await,
        }
    }

    /// Calls a script whose keys all belong to `key`, or to others that are [together](Self::together) with it.
    pub(super) async fn call(
        &self,
        key: &LockKey,
        call: &Call,
    ) -> Result<(Value, Counting), StoreError> {
        match self {
            Self::One(server) => {
                let lane = server.lane(key).clone();
                let (answer, sent) = lane.call(call).await?;
                Ok((answer, Counting { lane, sent }))
            }
            Self::Cluster(cluster) => cluster.call(key, call).await,
        }
    }

    /// Listens to a channel about `key`, together with everybody else who does. When this answers, the server has
    /// acknowledged it.
    pub(super) async fn listen(
        &self,
        key: &LockKey,
        channel: String,
    ) -> Result<Wakeups, StoreError> {
        match self {
            Self::One(server) => server.subscriptions.listen(channel).await,
            Self::Cluster(cluster) => cluster.listen(key, channel).await,
        }
    }

    /// How many listen to a channel about `key` through this store.
    pub(super) fn listeners(&self, key: &LockKey, channel: &str) -> usize {
        match self {
            Self::One(server) => server.subscriptions.listeners(channel),
            Self::Cluster(cluster) => cluster.listeners(key, channel),
        }
    }

    /// Keys with the same number may be asked about in one script, and what is sent about one is not overtaken by what is
    /// sent later about the same: keys of one connection, or of one slot.
    pub(super) fn together(&self, key: &LockKey) -> u16 {
        match self {
            Self::One(server) => u16::try_from(key.place_among(server.lanes.len()))
                .expect("fewer connections than a server has ports"),
            Self::Cluster(_) => Slot::of(key).number(),
        }
    }

    /// Which part of the servers' keys, that can fail without the others, this one belongs to.
    pub(super) fn part(&self, key: &LockKey) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_) => Slot::of(key).number(),
        }
    }

    /// Whether all that is about the key can be where it is; what to do if not.
    pub(super) fn accepts(&self, key: &LockKey) -> Result<(), &'static str> {
        match self {
            Self::One(_) => Ok(()),
            Self::Cluster(_) => Names::of(key).share_a_slot(),
        }
    }

    /// Whether a script may touch all of these keys.
    pub(super) fn serve_in_one_script<'a>(
        &self,
        mut keys: impl Iterator<Item = &'a LockKey>,
    ) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(_) => {
                let first = keys.next().map(Slot::of);
                keys.all(|key| Some(Slot::of(key)) == first)
            }
        }
    }
}

impl Server {
    fn lane(&self, key: &LockKey) -> &Arc<Lane> {
        &self.lanes[key.place_among(self.lanes.len())]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.close();
        }
        self.source.close();
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(server) => write!(f, "one, {} connections", server.lanes.len()),
            Self::Cluster(_) => f.write_str("a Cluster"),
        }
    }
}
