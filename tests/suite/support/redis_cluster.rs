//! A Redis Cluster of the test's own.

#[path = "redis_cluster/slots.rs"]
mod slots;

use std::collections::BTreeMap;
use std::process::{ChildStdin, Command};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::OnceCell;

use super::redis_server::Builder;
use super::{Dump, Process, RedisServer, eventually};

const MASTERS: usize = 3;
const SLOTS: usize = 16384;
const LIMIT: Duration = Duration::from_secs(60);

/// Three masters (nodes 0 to 2) with a replica each (nodes 3 to 5), killed on drop.
#[derive(Debug)]
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster whose nodes declare each other failed after half a minute at the earliest: long enough on a busy
    /// machine.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[("cluster-node-timeout", "30000")]).await
    }

    /// Starts a cluster, and sets these parameters of each node.
    pub(crate) async fn start_with(parameters: &[(&str, &str)]) -> Self {
        Self::start_like(RedisServer::builder(), parameters).await
    }

    /// The same, with every node configured like this.
    pub(crate) async fn start_like(like: Builder, parameters: &[(&str, &str)]) -> Self {
        let node = like
            .cluster()
            // Gossip is faster with a short time-out. During the set-up, no node may be declared failed.
            .config("cluster-node-timeout", "2000")
            .config("cluster-replica-no-failover", "yes")
            .config("cluster-replica-validity-factor", "0")
            .config("repl-diskless-sync-delay", "0");
        let cluster = Self {
            nodes: join_all((0..2 * MASTERS).map(|_| node.clone().start())).await,
        };
        cluster.form().await;
        let failover = ("cluster-replica-no-failover", "no");
        for (name, value) in parameters.iter().chain([&failover]) {
            for node in &cluster.nodes {
                node.ask::<()>(&["CONFIG", "SET", name, value]).await;
            }
        }
        cluster
    }

    /// The cluster of all tests that only take locks, each with names of its own. It ends with the test binary.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<(RedisCluster, Warden)> = OnceCell::const_new();
        &SHARED.get_or_init(Self::start_guarded).await.0
    }

    /// The cluster of all tests that move slots, each a slot of its own. While a slot moves, [`dump`](Self::dump) fails.
    pub(crate) async fn shared_by_movers() -> &'static Self {
        static SHARED: OnceCell<(RedisCluster, Warden)> = OnceCell::const_new();
        &SHARED.get_or_init(Self::start_guarded).await.0
    }

    async fn start_guarded() -> (Self, Warden) {
        let cluster = Self::start().await;
        let warden = Warden::of(&cluster.nodes);
        (cluster, warden)
    }

    /// The addresses of all nodes.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// All keys of the masters whose names contain `part`.
    pub(crate) async fn dump(&self, part: &str) -> Dump {
        let masters = join_all(self.masters().map(RedisServer::dump)).await;
        let mut all: Dump = masters.into_iter().flatten().collect();
        all.retain(|key, _| key.contains(part));
        all
    }

    /// Every channel whose name contains `part`, with the number of subscribers on the masters.
    pub(crate) async fn pubsub_channels(&self, part: &str) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for channels in join_all(self.masters().map(RedisServer::pubsub_channels)).await {
            for (channel, listeners) in channels {
                if channel.contains(part) {
                    *all.entry(channel).or_default() += listeners;
                }
            }
        }
        all
    }

    /// Whether there is such a key.
    pub(crate) async fn has(&self, key: &str) -> bool {
        let node = self.master_of(self.slot(key).await).await;
        self.nodes[node].ask(&["EXISTS", key]).await
    }

    /// Removes a key, on whichever node.
    pub(crate) async fn delete(&self, key: &str) {
        // The two other masters answer with an error.
        let words = ["DEL", key];
        let asked = self.masters().map(|node| node.try_ask::<()>(&words));
        assert!(join_all(asked).await.iter().any(Result::is_ok), "{key}");
    }

    /// The nodes that were made masters.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes[..MASTERS].iter()
    }

    async fn form(&self) {
        let share = SLOTS.div_ceil(MASTERS);
        for (place, node) in self.nodes.iter().enumerate() {
            // Otherwise the nodes would first resolve a conflict of epochs.
            let epoch = (place + 1).to_string();
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await;
            if place < MASTERS {
                let slots = place * share..SLOTS.min((place + 1) * share);
                let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter();
                let words: Vec<&str> = words.chain(slots.iter().map(String::as_str)).collect();
                node.ask::<()>(&words).await;
            }
        }
        // Each with each: gossip alone takes seconds.
        self.introduce_all().await;
        for place in MASTERS..self.nodes.len() {
            let master = self.id(place - MASTERS).await;
            eventually("a replica finds its master", LIMIT, async || {
                let words = ["CLUSTER", "REPLICATE", &master];
                self.nodes[place].try_ask::<()>(&words).await
            })
            .await;
        }
        self.until_whole().await;
    }

    /// Adds a node without slots, at the end of the list. Waits until all nodes know it.
    pub(crate) async fn join(&mut self, node: Builder) -> usize {
        self.nodes.push(node.cluster().start().await);
        self.introduce_all().await;
        for node in &self.nodes {
            eventually("the new node is known", LIMIT, async || {
                let info: String = node.ask(&["CLUSTER", "INFO"]).await;
                let known = format!("cluster_known_nodes:{}", self.nodes.len());
                (info.contains(&known) && info.contains("cluster_state:ok"))
                    .then_some(())
                    .ok_or(info)
            })
            .await;
        }
        self.nodes.len() - 1
    }

    async fn introduce_all(&self) {
        for node in &self.nodes {
            // Not to itself: its own message that it is a master, sent before it became a replica and read afterwards, would
            // make it a master again.
            let is_other = |other: &&RedisServer| other.port() != node.port();
            for other in self.nodes.iter().filter(is_other) {
                let (port, bus) = (other.port().to_string(), other.bus_port().to_string());
                let words = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
                node.ask::<()>(&words).await;
            }
        }
    }

    /// The keys of one node, master or replica, whose names contain `part`.
    pub(crate) async fn keys_on(&self, node: usize, part: &str) -> Vec<String> {
        let pattern = format!("*{part}*");
        self.nodes[node].ask(&["KEYS", &pattern]).await
    }

    /// Cuts the replica of a master off, while the master continues.
    pub(crate) async fn cut_off_replica(&self, master: usize) {
        let (master, replica) = (&self.nodes[master], &self.nodes[master + MASTERS]);
        // Without a password, the replica cannot connect again.
        let words = ["ACL", "SETUSER", "disabled", "off"];
        master.ask::<()>(&words).await;
        replica
            .ask::<()>(&["CONFIG", "SET", "masteruser", "disabled"])
            .await;
        replica
            .ask::<()>(&["CONFIG", "SET", "masterauth", "wrong"])
            .await;
        master
            .ask::<()>(&["CLIENT", "KILL", "TYPE", "replica"])
            .await;
        eventually("the replica is cut off", LIMIT, async || {
            let info: String = replica.ask(&["INFO", "replication"]).await;
            let link: String = master.ask(&["INFO", "replication"]).await;
            info.contains("master_link_status:down") && link.contains("connected_slaves:0")
        })
        .await;
    }

    /// Waits until every node knows all masters and replicas, and every replica is synchronised.
    pub(crate) async fn until_whole(&self) {
        eventually("the cluster is whole", LIMIT, async || {
            self.look_whole().await
        })
        .await;
    }

    /// Whether the cluster is complete; if not, the state of a node that lacks something.
    async fn look_whole(&self) -> Result<(), String> {
        for node in &self.nodes {
            let info: String = node.ask(&["CLUSTER", "INFO"]).await;
            let replication: String = node.ask(&["INFO", "replication"]).await;
            let ranges: Vec<Vec<Value>> = node.ask(&["CLUSTER", "SLOTS"]).await;
            let whole = info.contains("cluster_state:ok")
                && info.contains(&format!("cluster_known_nodes:{}", self.nodes.len()))
                && !replication.contains("master_link_status:down")
                && !replication.contains("master_sync_in_progress:1")
                && ranges.iter().all(|range| range.len() == 4);
            if !whole {
                return Err(node.ask(&["CLUSTER", "NODES"]).await);
            }
        }
        Ok(())
    }

    async fn id(&self, node: usize) -> String {
        self.nodes[node].ask(&["CLUSTER", "MYID"]).await
    }
}

/// Kills the servers when this process ends, and removes their directories: no test drops a shared cluster.
#[derive(Debug)]
struct Warden {
    /// The standard input of the process that kills; it ends with this process.
    _stdin: ChildStdin,
    _process: Process,
}

/// Its arguments are the id and the directory of each server. Ctrl-C goes to this shell as well as to the tests.
const WARDEN: &str = r#"
trap '' HUP INT TERM
read -r _
while [ $# -gt 0 ]; do
  kill -9 "$1"
  rm -rf "$2"
  shift 2
done
"#;

impl Warden {
    fn of(servers: &[RedisServer]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", WARDEN, "warden"]);
        for server in servers {
            command.arg(server.process_id().to_string());
            command.arg(server.directory());
        }
        let (process, stdin, _) = Process::spawn_piped(&mut command).expect("a shell");
        Self {
            _stdin: stdin,
            _process: process,
        }
    }
}

mod tests {
    use std::collections::BTreeMap;

    use redis::AsyncTypedCommands;

    use crate::support::{Dump, RedisCluster};

    #[tokio::test]
    async fn a_cluster_serves_every_slot_and_moves_one_with_its_keys() {
        let cluster = RedisCluster::start().await;
        for node in 0..3 {
            let name = cluster.name_on(node, "here-").await;
            let mut redis = cluster.nodes[node].connection().await;
            redis.set(&name, "1").await.unwrap();
        }
        let name = cluster.name_on(2, "here-").await;
        let slot = cluster.slot(&name).await;
        assert_eq!(cluster.master_of(slot).await, 2);
        assert_eq!(cluster.dump("here-").await.len(), 3);
        assert_eq!(cluster.dump("there-").await, Dump::new());
        assert_eq!(cluster.pubsub_channels("").await, BTreeMap::new());

        cluster.move_slot(slot, 2, 0).await;
        assert_eq!(cluster.master_of(slot).await, 0);
        let mut redis = cluster.nodes[0].connection().await;
        assert_eq!(redis.get(&name).await.unwrap().as_deref(), Some("1"));
        assert_eq!(cluster.dump("here-").await.len(), 3);
    }
}
