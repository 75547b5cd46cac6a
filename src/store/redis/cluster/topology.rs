//! Finding out which server serves what.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::map::Map;
use super::node::{Maker, Node};
use super::slots::{Address, Range};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::failure::more_telling;
use crate::store::redis::slot::Slot;

/// The shortest time between two questions to the Cluster that no redirection has called for.
const PAUSE: Duration = Duration::from_millis(50);

/// How many servers are asked at the same time.
const ASKED_AT_ONCE: usize = 4;

/// The present [`Map`], and the servers in it.
pub(super) struct Topology {
    seeds: Vec<Address>,
    maker: Maker,
    map: watch::Sender<Option<Arc<Map>>>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// Held by the one who is asking; the others wait for what that one learns.
    last: tokio::sync::Mutex<Option<Try>>,
    background: Mutex<Option<JoinHandle<()>>>,
}

/// The end of a try to find out.
struct Try {
    at: Instant,
    failed: Option<StoreError>,
}

/// Why the map may be wrong.
#[derive(Clone)]
pub(super) enum Doubt {
    /// A server said that this one knows better.
    Moved(Address),
    /// This server cannot be reached, or serves nothing.
    Failed(Address),
    /// Nobody has the slot.
    Nobody,
}

impl Topology {
    pub(super) fn new(seeds: Vec<Address>, maker: Maker) -> Self {
        Self {
            seeds,
            maker,
            map: watch::Sender::new(None),
            nodes: Mutex::default(),
            last: tokio::sync::Mutex::new(None),
            background: Mutex::default(),
        }
    }

    /// The present map; the first one is asked for.
    pub(super) async fn map(&self) -> Result<Arc<Map>, StoreError> {
        match self.known() {
            Some(map) => Ok(map),
            None => self.learn(None, None).await,
        }
    }

    /// The server that has the slot by the map, or by a newer one if nobody has it by this.
    pub(super) async fn master(
        &self,
        map: Arc<Map>,
        slot: Slot,
    ) -> Result<(Arc<Map>, Arc<Node>), StoreError> {
        let map = match map.master(slot) {
            Some(_) => map,
            None => self.newer(&map, Doubt::Nobody).await?,
        };
        match map.master(slot).cloned() {
            Some(node) => Ok((map, node)),
            None => Err(StoreError::new(
                StoreErrorKind::Transient,
                "no server of the Cluster serves the slot of the key",
            )),
        }
    }

    /// A map that is newer than `seen`, which is in doubt.
    pub(super) async fn newer(&self, seen: &Map, doubt: Doubt) -> Result<Arc<Map>, StoreError> {
        self.learn(Some(seen.version), Some(doubt)).await
    }

    /// The same in the background, for whoever asks next.
    pub(super) fn doubt(self: &Arc<Self>, seen: &Map, doubt: Doubt) {
        let (topology, seen) = (self.clone(), seen.version);
        let mut background = lock(&self.background);
        if background.as_ref().is_none_or(JoinHandle::is_finished) {
            *background = Some(tokio::spawn(async move {
                if let Err(error) = topology.learn(Some(seen), Some(doubt)).await {
                    tracing::debug!(%error, "no server of the Cluster says who serves what");
                }
            }));
        }
    }

    /// Told of every new map.
    pub(super) fn changes(&self) -> watch::Receiver<Option<Arc<Map>>> {
        self.map.subscribe()
    }

    /// The server at `address`, whether it has slots or not.
    pub(super) fn node(&self, address: &Address) -> Result<Arc<Node>, StoreError> {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Arc::new(self.maker.make(address)?);
        nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    /// Forgets every server, and asks no more.
    pub(super) fn close(&self) {
        if let Some(task) = lock(&self.background).take() {
            task.abort();
        }
        self.map.send_replace(None);
        lock(&self.nodes).clear();
    }

    /// The present map, if there is one yet.
    pub(super) fn known(&self) -> Option<Arc<Map>> {
        self.map.borrow().clone()
    }

    async fn learn(&self, seen: Option<u64>, doubt: Option<Doubt>) -> Result<Arc<Map>, StoreError> {
        let mut last = self.last.lock().await;
        let known = self.known();
        if let Some(map) = &known
            && Some(map.version) != seen
        {
            return Ok(map.clone());
        }
        if let Some(Try { at, failed }) = &*last {
            match failed {
                Some(error) if at.elapsed() < PAUSE => return Err(error.clone()),
                // Whoever moved a slot knows of it; of a failure the others may not have heard yet.
                None if !matches!(doubt, Some(Doubt::Moved(_))) => sleep_until(*at + PAUSE).await,
                _ => {}
            }
        }
        let answer = self.ask(known.as_deref(), doubt.as_ref()).await;
        let learnt = answer.and_then(|ranges| self.adopt(known.as_deref(), &ranges));
        *last = Some(Try {
            at: Instant::now(),
            failed: learnt.as_ref().err().cloned(),
        });
        learnt
    }

    /// Asks first who should know best, then the other masters, then everybody else.
    async fn ask(
        &self,
        known: Option<&Map>,
        doubt: Option<&Doubt>,
    ) -> Result<Vec<Range>, StoreError> {
        let mut failed = None;
        match doubt {
            Some(Doubt::Moved(address)) => {
                if let Ok(ranges) = self.node(address)?.slots().await {
                    return Ok(ranges);
                }
                failed = Some(address);
            }
            Some(Doubt::Failed(address)) => failed = Some(address),
            Some(Doubt::Nobody) | None => {}
        }
        let masters = known.map_or(&[][..], Map::masters).iter();
        let mut masters: Vec<_> = masters
            .filter(|node| Some(&node.address) != failed)
            .cloned()
            .collect();
        fastrand::shuffle(&mut masters);
        let mut error = None;
        for some in masters.chunks(ASKED_AT_ONCE) {
            match ask_some(some).await {
                Ok(ranges) => return Ok(ranges),
                Err(failure) => error = Some(more_telling(error, failure)),
            }
        }
        let replicas = known.iter().flat_map(|map| &map.replicas);
        let mut others: Vec<&Address> = self.seeds.iter().chain(replicas).chain(failed).collect();
        others.sort_unstable();
        others.dedup();
        fastrand::shuffle(&mut others);
        for some in others.chunks(ASKED_AT_ONCE) {
            // Not kept: most of them have no slots.
            let some = some
                .iter()
                .map(|address| Ok(Arc::new(self.maker.make(address)?)));
            match ask_some(&some.collect::<Result<Vec<_>, StoreError>>()?).await {
                Ok(ranges) => return Ok(ranges),
                Err(failure) => error = Some(more_telling(error, failure)),
            }
        }
        Err(error.unwrap_or_else(nobody))
    }

    fn adopt(&self, known: Option<&Map>, ranges: &[Range]) -> Result<Arc<Map>, StoreError> {
        let version = known.map_or(0, |map| map.version + 1);
        let map = Arc::new(Map::new(version, ranges, |address| self.node(address))?);
        tracing::debug!(masters = map.masters().len(), "learnt who serves what");
        lock(&self.nodes).retain(|address, _| map.has(address));
        self.map.send_replace(Some(map.clone()));
        Ok(map)
    }
}

/// The first answer counts.
async fn ask_some(nodes: &[Arc<Node>]) -> Result<Vec<Range>, StoreError> {
    let mut asking: FuturesUnordered<_> = nodes.iter().map(|node| node.slots()).collect();
    let mut error = None;
    while let Some(answer) = asking.next().await {
        match answer {
            Ok(ranges) => return Ok(ranges),
            Err(failure) => error = Some(more_telling(error, failure)),
        }
    }
    Err(error.unwrap_or_else(nobody))
}

fn nobody() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "the Cluster has no servers")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
