//! A Cluster whose servers have only TLS ports, and require client certificates.

use std::error::Error;

use tower_distributed_lock::{LockMode, LockStore, RedisStore, RedisStoreBuilder, StoreError};

use super::*;
use crate::support::{RedisCluster, ReservedPort};

impl Authorities {
    async fn cluster(&self, names: &[&str]) -> RedisCluster {
        let patient = [("cluster-node-timeout", "30000")];
        RedisCluster::start_like(self.node(self.ours.signs(names)), &patient).await
    }

    /// A Cluster whose servers declare each other failed after two seconds.
    async fn hasty_cluster(&self) -> RedisCluster {
        RedisCluster::start_like(self.node(self.ours.signs(&NAMES)), &[]).await
    }

    fn cluster_store(&self, seeds: impl IntoIterator<Item = String>) -> RedisStoreBuilder {
        let builder = RedisStore::cluster(seeds).ca_certificate(self.ours.certificate());
        showing(builder, &self.ours.signs(&[]))
    }
}

/// A name for [`locks_work`] whose locks are all on one server, and its slot.
async fn name_on(cluster: &RedisCluster, node: usize, beginning: &str) -> (String, u16) {
    let name = cluster.name_on(node, beginning).await;
    let slot = cluster.slot(&name).await;
    (format!("{{{name}}}"), slot)
}

/// Requests for locks on the server fail, with the reason and the server's name; a little later if it had another
/// certificate before.
async fn refuses(store: &RedisStore, key: &str, server: &RedisServer, expected: &str) {
    let told = |error: &StoreError| {
        let text = error.source().unwrap().to_string();
        let named = text.contains(&format!("127.0.0.1:{}: ", server.port()));
        error.kind() == StoreErrorKind::Refused && named && text.contains(expected)
    };
    for mode in MODES {
        let refused = patient(key, mode);
        eventually("it is refused for this reason", LIMIT, async || {
            let asking = error(store, &refused).await;
            let listening = store.subscribe(&refused).await.unwrap_err();
            match told(&asking) && told(&listening) {
                true => Ok(()),
                false => Err((asking, listening)),
            }
        })
        .await;
    }
    let dump = server.dump().await;
    assert!(dump.keys().all(|name| !name.contains(key)), "{dump:#?}");
}

#[tokio::test]
async fn locks_and_sharded_wake_ups_work_on_every_server() {
    let authorities = Authorities::new();
    let cluster = authorities.cluster(&NAMES).await;
    let store = authorities
        .cluster_store(cluster.urls())
        .connect()
        .await
        .unwrap();
    for node in 0..3 {
        let (key, _) = name_on(&cluster, node, "k").await;
        locks_work(&store, &key).await;
        let wakeups = store.subscribe(&patient(&*key, LockMode::Write)).await;
        let server = &cluster.nodes[node];
        let list = match server.knows_shards().await {
            true => "SHARDCHANNELS",
            false => "CHANNELS",
        };
        let channels: Vec<String> = server.ask(&["PUBSUB", list]).await;
        assert_eq!(channels.len(), 1, "{channels:?}");
        drop(wakeups);
        let port: Vec<String> = server.ask(&["CONFIG", "GET", "port"]).await;
        assert_eq!(port, ["port", "0"]);
    }
}

/// The store connects before the server exists, so that it learns of the server only from the answers of others.
#[tokio::test]
async fn a_server_that_a_redirection_names_has_to_show_its_certificate() {
    let authorities = Authorities::new();
    let mut cluster = authorities.cluster(&NAMES).await;
    let store = authorities
        .cluster_store(cluster.urls())
        .connect()
        .await
        .unwrap();

    let known = authorities.node(authorities.ours.signs(&NAMES));
    let newcomer = cluster.join(known).await;
    let (key, slot) = name_on(&cluster, 0, "trusted").await;
    cluster.move_slot(slot, 0, newcomer).await;
    locks_work(&store, &key).await;
    assert!(asks(&store, &attempt(&*key, LockMode::Write)).await);
    assert!(!cluster.keys_on(newcomer, &key).await.is_empty());

    // The third one is refused by the other servers, too.
    for (credentials, expected) in authorities.refused().into_iter().take(2) {
        let node = cluster.join(authorities.node(credentials)).await;
        // Without any slot it would become a replica.
        let (_, anchor) = name_on(&cluster, 0, "anchor").await;
        cluster.move_slot(anchor, 0, node).await;
        let (key, slot) = name_on(&cluster, 0, "refused").await;
        let (other, _) = name_on(&cluster, 0, "other").await;
        // ASK: the slot, which is empty, is being moved to it.
        cluster.begin_move(slot, 0, node).await;
        let asking = attempt(&*key, LockMode::Write);
        let error = error(&store, &asking).await;
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error:?}");
        // MOVED: it has the slot.
        cluster.end_move(slot, 0, node).await;
        refuses(&store, &key, &cluster.nodes[node], expected).await;
        locks_work(&store, &other).await;
        // The slot moves to a trusted server. The server that is asked may not know that at once.
        cluster.move_slot(slot, node, 1).await;
        until_locks_work(&store, &key).await;
    }
}

#[tokio::test]
async fn a_server_whose_certificate_was_replaced_by_a_wrong_one_fails_alone_until_it_has_a_good_one()
 {
    let authorities = Authorities::new();
    let mut cluster = authorities.cluster(&NAMES).await;
    let store = authorities
        .cluster_store(cluster.urls())
        .connect()
        .await
        .unwrap();
    let (key, _) = name_on(&cluster, 1, "k").await;
    let (other, _) = name_on(&cluster, 2, "k").await;
    locks_work(&store, &key).await;
    for (credentials, expected) in authorities.refused() {
        cluster.nodes[1].restart_showing(credentials).await;
        refuses(&store, &key, &cluster.nodes[1], expected).await;
        locks_work(&store, &other).await;
    }
    let good = authorities.ours.signs(&NAMES);
    cluster.nodes[1].restart_showing(good).await;
    until_locks_work(&store, &key).await;
}

/// When the store asks again, it has only the address of the former master.
#[tokio::test]
async fn a_former_master_with_a_wrong_certificate_does_not_hide_its_successor() {
    let authorities = Authorities::new();
    let mut cluster = authorities.hasty_cluster().await;
    let store = authorities
        .cluster_store(cluster.urls())
        .connect()
        .await
        .unwrap();
    let (key, slot) = name_on(&cluster, 1, "k").await;
    locks_work(&store, &key).await;
    cluster.nodes[1].kill9();
    eventually("its replica is the master", LIMIT, async || {
        cluster.serves(4, slot).await
    })
    .await;
    let (strange, _) = &authorities.refused()[0];
    cluster.nodes[1].restart_showing(strange.clone()).await;
    until_locks_work(&store, &key).await;
}

#[tokio::test]
async fn seeds_that_are_not_trusted_or_do_not_trust_us_are_refused() {
    let authorities = Authorities::new();
    let Authorities { ours, theirs } = &authorities;
    let unused = ReservedPort::reserve().unwrap();
    let unused = format!("rediss://{}", unused.address());
    for (credentials, expected) in authorities.refused() {
        let seed = authorities.node(credentials).cluster().start().await;
        // A second, silent seed does not hide the error.
        let seeds = [unused.clone(), seed.url(), unused.clone()];
        let text = refusal(authorities.cluster_store(seeds)).await;
        assert!(text.contains(expected), "{text}");
        assert!(text.contains(&seed.port().to_string()), "{text}");
    }
    let seed = authorities.node(ours.signs(&NAMES)).cluster();
    let seed = seed.start().await;
    let without = RedisStore::cluster([seed.url()]).ca_certificate(ours.certificate());
    // The reason may be lost with the connection.
    assert!(without.clone().connect().await.is_err());
    let stranger = Authority::new("unknown").signs(&[]);
    assert!(showing(without, &stranger).connect().await.is_err());
    let plain = RedisStore::cluster(["redis://127.0.0.1:1"]).ca_certificate(theirs.certificate());
    let error = plain.connect_lazy().unwrap_err();
    let text = error.source().unwrap().to_string();
    assert!(text.contains("`rediss://`"), "{text}");
}

/// Servers announce addresses by default, and few certificates contain addresses.
#[tokio::test]
async fn certificates_for_host_names_need_servers_that_announce_them() {
    let authorities = Authorities::new();
    let cluster = authorities.cluster(&["localhost"]).await;
    let seeds = || cluster.nodes.iter().map(|node| node.tls_url("localhost"));
    let text = refusal(authorities.cluster_store(seeds())).await;
    assert!(text.contains("not valid for name"), "{text}");
    assert!(text.contains("127.0.0.1:"), "{text}");
    // Both came with Redis 7, as these did.
    if !cluster.nodes[0].knows_shards().await {
        eprintln!("NOTHING IS TESTED WITH HOST NAMES: the servers cannot announce any");
        return;
    }
    for node in &cluster.nodes {
        configure(node, "cluster-announce-hostname", "localhost").await;
        configure(node, "cluster-preferred-endpoint-type", "hostname").await;
    }
    let store = eventually("all have heard the names", LIMIT, async || {
        authorities.cluster_store(seeds()).connect().await
    })
    .await;
    for node in 0..3 {
        let (key, slot) = name_on(&cluster, node, "k").await;
        until_locks_work(&store, &key).await;
        cluster.move_slot(slot, node, (node + 1) % 3).await;
        locks_work(&store, &key).await;
    }
}
