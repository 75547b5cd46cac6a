//! Slots: which node has one, and how it moves.

use futures_util::future::join_all;
use redis::{RedisResult, Value};

use super::super::{RedisServer, eventually};
use super::{LIMIT, RedisCluster};

impl RedisCluster {
    /// The slot of the key.
    pub(crate) async fn slot(&self, key: &str) -> u16 {
        self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]).await
    }

    /// The node that reports itself as the slot's master.
    pub(crate) async fn master_of(&self, slot: u16) -> usize {
        for (place, node) in self.nodes.iter().enumerate() {
            if claims(node, slot).await.unwrap_or(false) {
                return place;
            }
        }
        panic!("no server serves slot {slot}");
    }

    /// A name with this prefix whose slot is on the node.
    pub(crate) async fn name_on(&self, node: usize, beginning: &str) -> String {
        for number in 0.. {
            let name = format!("{beginning}{number}");
            let claimed = claims(&self.nodes[node], self.slot(&name).await).await;
            if claimed.expect("the node answers") {
                return name;
            }
        }
        unreachable!("a node has slots")
    }

    /// Begins to move a slot: from now on, each of its keys is on one of the two nodes.
    pub(crate) async fn begin_move(&self, slot: u16, from: usize, to: usize) {
        // A node that does not know the last move would claim the slot with too low an epoch, and lose it again to the
        // former owner, which redirects all clients to itself.
        eventually("the masters agree whose the slot is", LIMIT, async || {
            let owners = join_all(self.masters().map(|node| owner(node, slot))).await;
            match owners.iter().all(|owner| *owner == owners[0]) {
                true => Ok(()),
                false => Err(owners),
            }
        })
        .await;
        let (source, target) = (self.id(from).await, self.id(to).await);
        let slot = slot.to_string();
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])
            .await;
        from.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target])
            .await;
    }

    /// Moves all keys that are in the slot now.
    pub(crate) async fn move_keys(&self, slot: u16, from: usize, to: usize) -> usize {
        let slot = slot.to_string();
        let keys: Vec<String> = self.nodes[from]
            .ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"])
            .await;
        for key in &keys {
            self.move_key(key, from, to).await;
        }
        keys.len()
    }

    /// Moves one key of a slot that is being moved.
    pub(crate) async fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        if let Some(password) = self.nodes[to].password() {
            words.extend(["AUTH", password]);
        }
        self.nodes[from].ask::<()>(&words).await;
    }

    /// Ends the move: the other node has the slot. The replicas learn of it a little later.
    pub(crate) async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (target, slot) = (self.id(to).await, slot.to_string());
        for node in [to, from] {
            let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
            self.nodes[node].ask::<()>(&words).await;
        }
    }

    /// Moves a slot with all its keys.
    pub(crate) async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to).await;
        self.move_keys(slot, from, to).await;
        self.end_move(slot, from, to).await;
    }

    /// Whether the node reports itself as the slot's master. A node that is loading does not answer.
    pub(crate) async fn serves(&self, node: usize, slot: u16) -> bool {
        claims(&self.nodes[node], slot).await.unwrap_or(false)
    }
}

/// The port of the slot's master, as the node sees it.
async fn owner(node: &RedisServer, slot: u16) -> Option<i64> {
    let ranges: Vec<Vec<Value>> = node.ask(&["CLUSTER", "SLOTS"]).await;
    ranges.iter().find_map(|range| match &range[..] {
        [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] if (*first..=*last).contains(&i64::from(slot)) => match master[1] {
            Value::Int(port) => Some(port),
            _ => None,
        },
        _ => None,
    })
}

async fn claims(node: &RedisServer, slot: u16) -> RedisResult<bool> {
    let nodes: String = node.try_ask(&["CLUSTER", "NODES"]).await?;
    let mut myself = nodes.lines().filter(|line| line.contains("myself,master"));
    Ok(myself.next().is_some_and(|line| {
        let ranges = line
            .split(' ')
            .skip(8)
            .filter(|word| !word.starts_with('['));
        let mut ranges = ranges.map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u16>().expect("a slot is a number");
            number(first)..=number(last)
        });
        ranges.any(|range| range.contains(&slot))
    }))
}
