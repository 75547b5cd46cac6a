//! Which server serves which slot, as far as this process knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::member::Member;
use super::slots::{Address, Range};
use crate::store::redis::slot::Slot;

/// One immutable view of a Cluster. A newer one replaces it as a whole.
pub(super) struct SlotMap {
    /// Rises with each view.
    pub(super) version: u64,
    /// First slot, last slot and index in `masters`, in the order of the slots.
    ranges: Vec<(u16, u16, usize)>,
    masters: Vec<Arc<Member>>,
    pub(super) replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// `node` finds or makes the server at an address.
    pub(super) fn new<E>(
        version: u64,
        ranges: &[Range],
        mut node: impl FnMut(&Address) -> Result<Arc<Member>, E>,
    ) -> Result<Self, E> {
        let addresses: BTreeSet<&Address> = ranges.iter().map(|range| &range.master).collect();
        let addresses: Vec<&Address> = addresses.into_iter().collect();
        let place = |range: &Range| addresses.binary_search(&&range.master);
        Ok(Self {
            version,
            ranges: ranges
                .iter()
                .filter_map(|range| Some((range.first, range.last, place(range).ok()?)))
                .collect(),
            masters: addresses
                .iter()
                .map(|address| node(address))
                .collect::<Result<_, E>>()?,
            replicas: ranges
                .iter()
                .flat_map(|range| range.replicas.iter().cloned())
                .collect(),
        })
    }

    /// The server that has the slot; `None` if no server has it.
    pub(super) fn master(&self, slot: Slot) -> Option<&Arc<Member>> {
        let slot = slot.number();
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, master) = self.ranges[..after].last()?;
        (slot <= *last).then(|| &self.masters[*master])
    }

    /// Whether this server has the slot.
    pub(super) fn is_master(&self, slot: Slot, node: &Arc<Member>) -> bool {
        let master = self.master(slot);
        master.is_some_and(|master| Arc::ptr_eq(master, node))
    }

    /// Every server that has slots.
    pub(super) fn masters(&self) -> &[Arc<Member>] {
        &self.masters
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
