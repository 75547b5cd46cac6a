//! Which server serves which slot, as far as this process knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::member::Member;
use super::slots::{Address, Range};
use crate::store::redis::slot::Slot;

/// One immutable view of a Cluster. A newer one replaces it as a whole.
pub(super) struct SlotMap {
    /// First slot, last slot and the server that has them, in the order of the slots.
    ranges: Vec<(u16, u16, Arc<Member>)>,
    /// Every server that has slots, in the order of the addresses.
    pub(super) masters: Vec<Arc<Member>>,
    pub(super) replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// `member` finds or makes the server at an address.
    pub(super) fn new(ranges: &[Range], member: impl Fn(&Address) -> Arc<Member>) -> Self {
        let addresses: BTreeSet<_> = ranges.iter().map(|range| &range.master).collect();
        let placed = |range: &Range| (range.first, range.last, member(&range.master));
        let replicas = ranges.iter().flat_map(|range| &range.replicas);
        Self {
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
