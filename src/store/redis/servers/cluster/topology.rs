//! Learns and keeps which server serves which slot.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use futures_util::stream::{self, Stream, StreamExt};
use redis::{FromRedisValue, Value};
use tokio::time::Instant;

use super::map::SlotMap;
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::store::redis::link::Purpose;
use crate::store::redis::link::address::Address;
use crate::store::redis::link::connector::Connector;
use crate::store::redis::link::context::LinkSettings;
use crate::store::redis::link::endpoint::Endpoint;
use crate::store::redis::protocol::failure::{accepted, more_telling, transient, unreachable};
use crate::store::redis::servers::node::Node;
use crate::sync::Mutex;
use crate::telemetry;

/// The pauses between refreshes that no redirection caused. They grow while the answers stay the same: all processes ask while a
/// server is down.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Backoff::LONGEST);

/// How many servers one refresh asks at a time.
const ASKED_AT_ONCE: usize = 4;

/// The servers of a Redis Cluster, and the current [`SlotMap`].
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    /// A seed address. Its credentials, protocol and TLS settings apply to every server.
    like: Endpoint,
    pub(super) settings: LinkSettings,
    /// Protects the map, which a refresh replaces as a whole.
    map: Mutex<Option<Arc<SlotMap>>>,
    /// Protects the servers of the map, and those that an answer or a redirection has named since: the next map drops these unless
    /// it has them.
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// Held by the task that refreshes the map; the others wait for its result.
    last: tokio::sync::Mutex<LastRefresh>,
}

/// What the last refresh has led to.
struct LastRefresh {
    failure: Option<StoreError>,
    /// Until then its result counts, unless a redirection names a server.
    until: Instant,
    pauses: Backoff,
}

/// A map that may be wrong.
pub(super) struct Doubt {
    pub(super) seen: Arc<SlotMap>,
    /// The server that is the cause; `None` if no server has the slot.
    pub(super) about: Option<Address>,
    /// A redirection named it. Otherwise it cannot be reached, or serves no slot.
    pub(super) is_owner: bool,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Address>, like: Endpoint, settings: LinkSettings) -> Self {
        Self {
            seeds,
            like,
            settings,
            map: Mutex::default(),
            nodes: Mutex::default(),
            last: tokio::sync::Mutex::new(LastRefresh {
                failure: None,
                until: Instant::now(),
                pauses: PAUSES,
            }),
        }
    }

    /// The current map; the first call asks the Cluster for it.
    pub(super) async fn map(self: &Arc<Self>) -> Result<Arc<SlotMap>, StoreError> {
        match self.known() {
            Some(map) => Ok(map),
            None => self.newer(None).await,
        }
    }

    /// A map that is newer than the one in `doubt`; the same one while the last refresh counts.
    pub(super) async fn newer(
        self: &Arc<Self>,
        doubt: Option<Doubt>,
    ) -> Result<Arc<SlotMap>, StoreError> {
        // In a task, which goes on while a caller is not polled: the others wait for its result.
        let thread = &self.settings.background;
        let refreshed = thread.spawn(self.clone().refresh(doubt)).await;
        refreshed.unwrap_or_else(|gone| Err(unreachable(gone)))
    }

    /// The server at `address`, with or without slots.
    pub(super) fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(address.clone());
        let make = || self.make(address, self.like.at(address));
        node.or_insert_with(make).clone()
    }

    fn make(&self, address: &Address, server: Endpoint) -> Arc<Node> {
        let (server, settings) = (Connector::Node(server), self.settings.clone());
        Arc::new(Node::new(address.clone(), server, settings))
    }

    /// The current map; `None` before the first one.
    pub(super) fn known(&self) -> Option<Arc<SlotMap>> {
        self.map.lock().clone()
    }

    async fn refresh(self: Arc<Self>, doubt: Option<Doubt>) -> Result<Arc<SlotMap>, StoreError> {
        let mut last = self.last.lock().await;
        let known = self.known();
        if let Some(map) = &known
            && !(doubt.as_ref()).is_some_and(|doubt| Arc::ptr_eq(&doubt.seen, map))
        {
            return Ok(map.clone());
        }
        // The server that moved a slot knows the new owner. After a failure, the other servers may not know the new master yet.
        let is_redirected = doubt.as_ref().is_some_and(|doubt| doubt.is_owner);
        if !is_redirected && Instant::now() < last.until {
            match (&last.failure, &known) {
                (Some(failure), _) => return Err(failure.clone()),
                (None, Some(map)) => return Ok(map.clone()),
                (None, None) => {}
            }
        }
        let was_quiet = last.until.elapsed() > Backoff::LONGEST;
        let answer = self.ask(known.as_deref(), doubt).await;
        let installed = answer.map(|map| self.install(map));
        if let Err(error) = &installed {
            tracing::debug!(%error, "no server of the Cluster says which server serves what");
        }
        let is_new = |map: &Arc<SlotMap>| known.is_none_or(|known| !known.is_like(map));
        if was_quiet || installed.as_ref().is_ok_and(is_new) {
            last.pauses.reset();
        }
        last.until = Instant::now() + last.pauses.next();
        last.failure = installed.as_ref().err().cloned();
        installed
    }

    /// Asks first the server that a redirection named, then the other masters, then all other servers. The first answer counts that
    /// is not older than the known map; if all of them are, the newest one: the Cluster may have been set up anew.
    async fn ask(
        &self,
        known: Option<&SlotMap>,
        doubt: Option<Doubt>,
    ) -> Result<SlotMap, StoreError> {
        let is_owner = doubt.as_ref().is_some_and(|doubt| doubt.is_owner);
        let about = doubt.and_then(|doubt| doubt.about);
        let owner = about.iter().filter(|_| is_owner);
        let owner: Vec<_> = owner.map(|address| self.node(address)).collect();
        let masters = known.iter().flat_map(|map| &map.masters).cloned();
        let masters = masters.filter(|node| Some(&node.address) != about.as_ref());
        let mut masters: Vec<_> = masters.collect();
        fastrand::shuffle(&mut masters);
        let replicas = known.iter().flat_map(|map| &map.replicas);
        let mut others: Vec<_> = self.seeds.iter().chain(replicas).chain(&about).collect();
        others.sort_unstable();
        others.dedup();
        fastrand::shuffle(&mut others);
        // The map of addresses is for those that servers announce.
        let server = |address| match self.seeds.contains(address) {
            true => self.like.reaching(address),
            false => self.like.at(address),
        };
        // These are not kept: most of them have no slots.
        let others = others
            .into_iter()
            .map(|other| self.make(other, server(other)));
        let others: Vec<_> = others.collect();
        // Each group is asked when all before it have failed.
        let [owner, masters, others] = [owner, masters, others].map(|nodes| {
            let asking = stream::iter(nodes).map(|node| self.ask_one(node));
            asking.buffer_unordered(ASKED_AT_ONCE)
        });
        let answers = owner.chain(masters).chain(others);
        newest(answers, known.map_or(0, |map| map.epoch)).await
    }

    /// Asks one server which server has which slots. Callers cannot block the connection for renewals.
    async fn ask_one(&self, node: Arc<Node>) -> Result<SlotMap, StoreError> {
        let ask = async |word| {
            let question = redis::cmd("CLUSTER").arg(word).to_owned();
            node.first(Purpose::Renewals).query(&question).await
        };
        let (slots, about) = try_join(ask("SLOTS"), ask("INFO")).await?;
        let (slots, teller) = (accepted(slots)?, &node.address);
        let map = SlotMap::read(&slots, epoch(&about), teller, |address| self.node(address));
        map.ok_or_else(|| transient(format!("{teller} knows of no slots")))
    }

    fn install(&self, map: SlotMap) -> Arc<SlotMap> {
        let map = Arc::new(map);
        tracing::debug!(masters = map.masters.len(), "read which server serves what");
        self.nodes.lock().retain(|address, _| map.has(address));
        let before = self.map.lock().replace(map.clone());
        // No other server has subscriptions: `Cluster::listen` looks at the map after each. A newer map may be known by now.
        let now = self.known().unwrap_or_else(|| map.clone());
        for node in before.iter().flat_map(|before| &before.masters) {
            let has = |slot| now.is_master(slot, node);
            node.subscriptions.end_all_but(has);
        }
        if before.is_some_and(|before| map.has_promoted(&before)) {
            telemetry::store::failed_over("cluster");
        }
        map
    }
}

/// The epoch in the answer to `CLUSTER INFO`: a server that is cut off from a failover, or does not know of it yet, names a lower
/// one. Zero if the user may not ask.
fn epoch(about: &Value) -> u64 {
    let text = String::from_redis_value_ref(about).unwrap_or_default();
    let mut lines = text.lines();
    let epoch = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    epoch.map_or(0, |epoch| epoch.trim().parse().unwrap_or(0))
}

/// The first answer that is not older than what is known; otherwise the newest of all.
async fn newest(
    answers: impl Stream<Item = Result<SlotMap, StoreError>>,
    known_epoch: u64,
) -> Result<SlotMap, StoreError> {
    let mut answers = pin!(answers);
    let (mut older, mut error) = (None::<SlotMap>, None);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(map) if map.epoch >= known_epoch => return Ok(map),
            Ok(map) if older.as_ref().is_none_or(|older| older.epoch < map.epoch) => {
                older = Some(map);
            }
            Ok(_) => {}
            Err(failure) => error = Some(more_telling(error.take(), failure)),
        }
    }
    let none = || error.unwrap_or_else(|| unreachable("the Cluster has no servers"));
    older.ok_or_else(none)
}

#[cfg(test)]
#[path = "topology/tests.rs"]
pub(super) mod tests;
