//! Which server has which slots, by one answer to `CLUSTER SLOTS`.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::Value;

use crate::store::redis::link::address::Address;
use crate::store::redis::protocol::slot::{SLOTS, Slot};
use crate::store::redis::servers::node::Node;

/// One immutable view of a Cluster. A newer one replaces it as a whole.
#[derive(Default)]
pub(super) struct SlotMap {
    /// The epoch of the server that answered. It rises with every failover and every slot that moves.
    pub(super) epoch: u64,
    /// First slot, last slot and the server that has them, in the order of the slots.
    pub(super) ranges: Vec<(u16, u16, Arc<Node>)>,
    /// Every server that has slots, in the order of the addresses.
    pub(super) masters: Vec<Arc<Node>>,
    pub(super) replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// Reads the answer of the server at `teller`; `None` if it has another form, or no slots. `node` finds or makes the server at an
    /// address.
    pub(super) fn read(
        answer: &Value,
        epoch: u64,
        teller: &Address,
        node: impl Fn(&Address) -> Arc<Node>,
    ) -> Option<Self> {
        let mut map = Self {
            epoch,
            ..Self::default()
        };
        for range in answer.as_sequence()? {
            let [Value::Int(first), Value::Int(last), servers @ ..] = range.as_sequence()? else {
                return None;
            };
            let servers = servers.iter().map(|server| Address::told(server, teller));
            let mut servers = servers.collect::<Option<Vec<_>>>()?.into_iter();
            let master = node(&servers.next()?);
            let last = u16::try_from(*last).ok().filter(|last| *last < SLOTS)?;
            map.ranges.push((u16::try_from(*first).ok()?, last, master));
            map.replicas.extend(servers);
        }
        map.ranges.sort_unstable_by_key(|(first, ..)| *first);
        let masters = map.ranges.iter().map(|(.., master)| master.clone());
        map.masters = masters.collect();
        map.masters
            .sort_unstable_by(|a, b| a.address.cmp(&b.address));
        map.masters.dedup_by(|a, b| Arc::ptr_eq(a, b));
        (!map.ranges.is_empty()).then_some(map)
    }

    /// The server that has the slot; `None` if no server has it.
    pub(super) fn master(&self, slot: Slot) -> Option<&Arc<Node>> {
        let slot = slot.number();
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, master) = self.ranges[..after].last()?;
        (slot <= *last).then_some(master)
    }

    /// The first slot of the server that has this one; the slot itself if no server has it.
    pub(super) fn first_with(&self, slot: Slot) -> u16 {
        let owner = self.master(slot);
        let mut ranges = self.ranges.iter();
        let first = ranges.find(|(.., node)| owner.is_some_and(|owner| Arc::ptr_eq(owner, node)));
        first.map_or(slot.number(), |(first, ..)| *first)
    }

    /// Whether this server has the slot.
    pub(super) fn is_master(&self, slot: Slot, node: &Arc<Node>) -> bool {
        let master = self.master(slot);
        master.is_some_and(|master| Arc::ptr_eq(master, node))
    }

    /// Whether it is the same view, of the same epoch.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let ranges = |map: &Self| {
            let ranges = map.ranges.iter();
            let ranges = ranges.map(|(first, last, node)| (*first, *last, Arc::as_ptr(node)));
            ranges.collect::<Vec<_>>()
        };
        self.epoch == other.epoch && ranges(self) == ranges(other)
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
mod tests {
    use super::*;
    use crate::store::redis::servers::cluster::topology::tests::cluster;

    #[tokio::test]
    async fn a_server_that_does_not_know_its_own_name_is_the_one_that_was_asked() {
        let teller = Address::new("redis-1", 7000);
        let cluster = cluster(&teller, []);
        let text = |text: &str| Value::BulkString(text.into());
        let server = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, servers: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], servers].concat())
        };
        let answer = Value::Array(vec![
            range(
                100,
                16383,
                vec![server(text("10.0.0.2"), 7001), server(text("?"), 7002)],
            ),
            range(0, 99, vec![server(Value::Nil, 7000)]),
        ]);
        let read =
            |answer: &Value| SlotMap::read(answer, 1, &teller, |address| cluster.node(address));
        let map = read(&answer).unwrap();
        let masters = map.ranges.iter().map(|(.., master)| &master.address);
        let other = Address::new("10.0.0.2", 7001);
        assert_eq!(masters.collect::<Vec<_>>(), [&teller, &other]);
        assert_eq!(map.replicas, [Address::new("redis-1", 7002)].into());
        for odd in [
            Value::Okay,
            Value::Array(Vec::new()),
            Value::Array(vec![range(0, 16384, vec![server(text("a"), 1)])]),
        ] {
            assert!(read(&odd).is_none(), "{odd:?}");
        }
    }
}
