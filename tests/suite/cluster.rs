//! `RedisStore` on a Redis Cluster of three masters and three replicas.
//!
//! What every store promises is tested on a Cluster by [`conformance`](crate::conformance). These tests cover what is
//! particular to a Cluster: several masters, moving slots, a lost server. Tests that change nothing share one Cluster;
//! tests that break something have their own.

mod failing;
mod listening;
mod listing;
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

/// Whether the servers know sharded channels (Redis 7 and newer). If not, wake-ups use plain channels.
async fn sharded(cluster: &RedisCluster) -> bool {
    let sharded = cluster.nodes[0].knows_shards().await;
    if !sharded {
        eprintln!("NOTHING IS TESTED ON SHARDED CHANNELS: the servers have none");
    }
    sharded
}

/// The channels with subscribers on one server whose names contain `part`.
async fn channels_on(server: &RedisServer, part: &str) -> Vec<String> {
    let channels = server.pubsub_channels().await.into_keys();
    channels.filter(|channel| channel.contains(part)).collect()
}

/// The prefix of the names of one test.
fn beginning() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("cluster-{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Records the commands of every master from now on.
async fn watch(cluster: &RedisCluster) -> Vec<Monitor<'_>> {
    join_all(cluster.masters().map(|node| node.monitor())).await
}

/// The commands of clients that contain `part`, by master. Commands of scripts are left out.
async fn sent(monitors: &[Monitor<'_>], part: &str) -> Vec<Vec<String>> {
    let lines = join_all(monitors.iter().map(Monitor::lines)).await;
    let about = |line: &String| line.contains(part) && !line.contains(" lua]");
    let by_master = lines
        .into_iter()
        .map(|lines| lines.into_iter().filter(about));
    by_master.map(Iterator::collect).collect()
}
