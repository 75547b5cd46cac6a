//! `RedisStore` on a Redis Cluster of three masters and three replicas.
//!
//! What every store promises is tested on a Cluster by [`conformance`](crate::conformance). Here is what only a Cluster
//! can do: be many, move slots, lose a server. Tests that only look share one; those that break something have their own.

mod failing;
mod listening;
mod moving;
mod routing;
mod several;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::RedisStore;

use crate::support::{Monitor, RedisCluster, RedisServer};

const LIMIT: Duration = Duration::from_secs(30);

/// The cluster that tests share, and a store of this test's own.
async fn shared() -> (&'static RedisCluster, RedisStore) {
    let cluster = RedisCluster::shared().await;
    (cluster, store(cluster).await)
}

async fn store(cluster: &RedisCluster) -> RedisStore {
    let store = RedisStore::cluster(cluster.urls()).connect().await;
    store.expect("the cluster answers")
}

/// Whether the servers know sharded channels, as those of Redis 7 and newer do. Where they do not, wake-ups have to travel
/// on plain ones.
async fn sharded(cluster: &RedisCluster) -> bool {
    let sharded = cluster.nodes[0].knows_shards().await;
    if !sharded {
        eprintln!("NOTHING IS TESTED ON SHARDED CHANNELS: the servers have none");
    }
    sharded
}

/// The channels that somebody listens to on one server, among those whose name contains this.
async fn channels_on(server: &RedisServer, part: &str) -> Vec<String> {
    let channels = server.pubsub_channels().await.into_keys();
    channels.filter(|channel| channel.contains(part)).collect()
}

/// What the names of one test begin with.
fn beginning() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("cluster-{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What every master is asked to do from now on.
async fn watch(cluster: &RedisCluster) -> Vec<Monitor<'_>> {
    join_all(cluster.masters().map(|node| node.monitor())).await
}

/// The commands that named this, from clients and not from scripts, by master.
async fn sent(monitors: &[Monitor<'_>], part: &str) -> Vec<Vec<String>> {
    let lines = join_all(monitors.iter().map(Monitor::lines)).await;
    let about = |line: &String| line.contains(part) && !line.contains(" lua]");
    let by_master = lines
        .into_iter()
        .map(|lines| lines.into_iter().filter(about));
    by_master.map(Iterator::collect).collect()
}
