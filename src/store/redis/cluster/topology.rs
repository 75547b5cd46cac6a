//! Learns and keeps which server serves which slot.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::member::{Member, MemberFactory};
use super::slots::{Address, Layout, Range};
use crate::error::StoreError;
use crate::store::redis::failure::{more_telling, unreachable};
use crate::store::redis::slot::Slot;
use crate::sync::Mutex;
use crate::telemetry;

/// The shortest time between two refreshes that no redirection caused.
const PAUSE: Duration = Duration::from_millis(50);

/// How many servers one refresh asks at a time.
const ASKED_AT_ONCE: usize = 4;

/// The servers of a Redis Cluster, and the current [`SlotMap`].
pub(in super::super) struct Cluster {
    seeds: Vec<Address>,
    pub(super) factory: MemberFactory,
    /// Protects the map, which a refresh replaces as a whole.
    map: Mutex<Option<Arc<SlotMap>>>,
    /// Protects the servers of the map, and those that a redirection has named since: the next map drops these unless it has
    /// them.
    members: Mutex<HashMap<Address, Arc<Member>>>,
    /// The time of the last refresh, and its error. Held by the task that refreshes the map; the others wait for its result.
    last: tokio::sync::Mutex<Option<(Instant, Option<StoreError>)>>,
}

/// A map that may be wrong.
pub(super) struct Doubt {
    pub(super) seen: Arc<SlotMap>,
    pub(super) stale: Stale,
}

/// Why it may be wrong.
pub(super) enum Stale {
    /// A redirection named this server.
    Moved(Address),
    /// This server cannot be reached, or serves no slot.
    Failed(Address),
    /// No server has the slot.
    Unserved,
}

impl Cluster {
    pub(in super::super) fn new(seeds: Vec<Address>, factory: MemberFactory) -> Self {
        Self {
            seeds,
            factory,
            map: Mutex::default(),
            members: Mutex::default(),
            last: tokio::sync::Mutex::new(None),
        }
    }

    /// The current map; the first call asks the Cluster for it.
    pub(super) async fn map(self: &Arc<Self>) -> Result<Arc<SlotMap>, StoreError> {
        match self.known() {
            Some(map) => Ok(map),
            None => self.newer(None).await,
        }
    }

    /// A map that is newer than the one in `doubt`.
    pub(super) async fn newer(
        self: &Arc<Self>,
        doubt: Option<Doubt>,
    ) -> Result<Arc<SlotMap>, StoreError> {
        // In a task, which goes on while a caller is not polled: the others wait for its result.
        let thread = &self.factory.settings.background;
        let refreshed = thread.spawn(self.clone().refresh(doubt)).await;
        refreshed.unwrap_or_else(|gone| Err(unreachable(gone)))
    }

    /// The server at `address`, with or without slots.
    pub(super) fn member(&self, address: &Address) -> Arc<Member> {
        let mut members = self.members.lock();
        let member = members.entry(address.clone());
        let make = || Arc::new(self.factory.make(address));
        member.or_insert_with(make).clone()
    }

    /// The current map; `None` before the first one.
    pub(super) fn known(&self) -> Option<Arc<SlotMap>> {
        self.map.lock().clone()
    }

    async fn refresh(self: Arc<Self>, doubt: Option<Doubt>) -> Result<Arc<SlotMap>, StoreError> {
        let (seen, stale) = doubt.map(|doubt| (doubt.seen, doubt.stale)).unzip();
        let mut last = self.last.lock().await;
        let known = self.known();
        if let Some(map) = &known
            && !seen.is_some_and(|seen| Arc::ptr_eq(&seen, map))
        {
            return Ok(map.clone());
        }
        if let Some((at, failed)) = &*last {
            match failed {
                Some(error) if at.elapsed() < PAUSE => return Err(error.clone()),
                // The server that moved a slot knows the new owner. After a failure, the other servers may not know the
                // new master yet.
                None if !matches!(stale, Some(Stale::Moved(_))) => sleep_until(*at + PAUSE).await,
                _ => {}
            }
        }
        let answer = self.ask(known.as_deref(), stale.as_ref()).await;
        let installed = answer.map(|layout| self.install(&layout));
        if let Err(error) = &installed {
            tracing::debug!(%error, "no server of the Cluster says which server serves what");
        }
        *last = Some((Instant::now(), installed.as_ref().err().cloned()));
        installed
    }

    /// Asks first the server that `stale` names, then the other masters, then all other servers. The first answer counts that is
    /// not older than the known map; if all of them are, the newest one: the Cluster may have been set up anew.
    async fn ask(
        &self,
        known: Option<&SlotMap>,
        stale: Option<&Stale>,
    ) -> Result<Layout, StoreError> {
        let known_epoch = known.map_or(0, |map| map.epoch);
        let mut older = None;
        let mut failed = None;
        match stale {
            Some(Stale::Moved(address)) => {
                match self.member(address).slots().await {
                    Ok(layout) if layout.epoch >= known_epoch => return Ok(layout),
                    Ok(layout) => older = Some(layout),
                    Err(_) => {}
                }
                failed = Some(address);
            }
            Some(Stale::Failed(address)) => failed = Some(address),
            Some(Stale::Unserved) | None => {}
        }
        let masters = known.iter().flat_map(|map| &map.masters);
        let mut masters: Vec<_> = masters
            .filter(|member| Some(&member.address) != failed)
            .cloned()
            .collect();
        fastrand::shuffle(&mut masters);
        let replicas = known.iter().flat_map(|map| &map.replicas);
        let mut others: Vec<&Address> = self.seeds.iter().chain(replicas).chain(failed).collect();
        others.sort_unstable();
        others.dedup();
        fastrand::shuffle(&mut others);
        // These members are not kept: most of them have no slots.
        let others = others.into_iter();
        let others: Vec<_> = others
            .map(|address| Arc::new(self.factory.make(address)))
            .collect();
        let asked = |member: Arc<Member>| async move { member.slots().await };
        let masters = stream::iter(masters).map(asked);
        let others = stream::iter(others).map(asked);
        // The others are asked when all masters have failed.
        let masters = masters.buffer_unordered(ASKED_AT_ONCE);
        let answers = masters.chain(others.buffer_unordered(ASKED_AT_ONCE));
        newest(answers, known_epoch, older).await
    }

    fn install(&self, layout: &Layout) -> Arc<SlotMap> {
        let map = Arc::new(SlotMap::new(layout, |address| self.member(address)));
        tracing::debug!(masters = map.masters.len(), "read which server serves what");
        self.members.lock().retain(|address, _| map.has(address));
        let before = self.map.lock().replace(map.clone());
        // No other server has subscriptions: `Cluster::listen` looks at the map after each. A newer map may be known by now.
        let now = self.known().unwrap_or_else(|| map.clone());
        for member in before.iter().flat_map(|before| &before.masters) {
            let has = |slot| now.is_master(slot, member);
            member.node.subscriptions.end_all_but(has);
        }
        if before.is_some_and(|before| map.has_promoted(&before)) {
            telemetry::store::failed_over("cluster");
        }
        map
    }
}

/// The first answer that is not older than what is known; otherwise the newest of all, `older` among them.
async fn newest(
    answers: impl Stream<Item = Result<Layout, StoreError>>,
    known_epoch: u64,
    mut older: Option<Layout>,
) -> Result<Layout, StoreError> {
    let mut answers = pin!(answers);
    let mut error = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(layout) if layout.epoch >= known_epoch => return Ok(layout),
            Ok(layout)
                if older
                    .as_ref()
                    .is_none_or(|older| older.epoch < layout.epoch) =>
            {
                older = Some(layout);
            }
            Ok(_) => {}
            Err(failure) => error = Some(more_telling(error.take(), failure)),
        }
    }
    let none = || error.unwrap_or_else(|| unreachable("the Cluster has no servers"));
    older.ok_or_else(none)
}

/// One immutable view of a Cluster. A newer one replaces it as a whole.
pub(super) struct SlotMap {
    /// The epoch of the answer that it was read from.
    epoch: u64,
    /// First slot, last slot and the server that has them, in the order of the slots.
    ranges: Vec<(u16, u16, Arc<Member>)>,
    /// Every server that has slots, in the order of the addresses.
    pub(super) masters: Vec<Arc<Member>>,
    pub(super) replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// `member` finds or makes the server at an address.
    pub(super) fn new(
        Layout { ranges, epoch }: &Layout,
        member: impl Fn(&Address) -> Arc<Member>,
    ) -> Self {
        let addresses: BTreeSet<_> = ranges.iter().map(|range| &range.master).collect();
        let placed = |range: &Range| (range.first, range.last, member(&range.master));
        let replicas = ranges.iter().flat_map(|range| &range.replicas);
        Self {
            epoch: *epoch,
            ranges: ranges.iter().map(placed).collect(),
            masters: addresses.into_iter().map(&member).collect(),
            replicas: replicas.cloned().collect(),
        }
    }

    /// The server that has the slot; `None` if no server has it.
    pub(super) fn master(&self, slot: Slot) -> Option<&Arc<Member>> {
        let slot = slot.number();
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, master) = self.ranges[..after].last()?;
        (slot <= *last).then_some(master)
    }

    /// The first slot of the server that has this one; the slot itself if no server has it.
    pub(super) fn first_with(&self, slot: Slot) -> u16 {
        let Some(master) = self.master(slot) else {
            return slot.number();
        };
        let mut ranges = self.ranges.iter();
        let first = ranges.find(|(.., other)| Arc::ptr_eq(other, master));
        first.map_or(slot.number(), |(first, ..)| *first)
    }

    /// Whether this server has the slot.
    pub(super) fn is_master(&self, slot: Slot, node: &Arc<Member>) -> bool {
        let master = self.master(slot);
        master.is_some_and(|master| Arc::ptr_eq(master, node))
    }

    /// Whether a server that was a replica `before` has slots now.
    pub(super) fn has_promoted(&self, before: &Self) -> bool {
        let mut masters = self.masters.iter();
        masters.any(|node| before.replicas.contains(&node.address))
    }

    /// Whether this server has slots.
    pub(super) fn has(&self, address: &Address) -> bool {
        self.masters.iter().any(|node| node.address == *address)
    }
}

#[cfg(test)]
#[path = "topology/tests.rs"]
mod tests;
