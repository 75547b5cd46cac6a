//! Wake-ups in a Cluster (PROTOCOL 1.9).

use tower_distributed_lock::{LockMode, LockStore, RedisStore};

use super::{LIMIT, beginning, sent, shared, store, watch};
use crate::redis_store::{MODES, asks, asleep, attempt, patient, releases, woken};
use crate::support::{RedisCluster, eventually};

#[tokio::test]
async fn wake_ups_travel_on_sharded_channels_of_the_slots_master() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    for node in 0..3 {
        for mode in MODES {
            let name = cluster.name_on(node, &beginning).await;
            let holder = attempt(name.as_str(), mode);
            let waiter = match mode {
                LockMode::Read => patient(name.as_str(), LockMode::Write),
                mode => patient(name.as_str(), mode),
            };
            assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
            let mut wakeups = store.subscribe(&waiter).await.unwrap();
            let channels: Vec<String> = cluster.nodes[node]
                .ask(&["PUBSUB", "SHARDCHANNELS", &format!("*{name}*")])
                .await;
            assert_eq!(channels.len(), 1, "{mode:?}");

            let monitors = watch(cluster).await;
            assert!(releases(&store, &holder).await);
            woken(&mut wakeups).await;
            asleep(&mut wakeups).await;
            let lines = monitors[node].lines().await;
            let told = |command: &str| {
                let by = format!(" lua] \"{command}\"");
                let about = |line: &&String| line.contains(&name) && line.contains(&by);
                lines.iter().filter(about).count()
            };
            assert_eq!((told("SPUBLISH"), told("PUBLISH")), (1, 0), "{mode:?}");
            store.withdraw(&waiter, false).await.unwrap();
        }
    }
    eventually("nobody listens", LIMIT, async || {
        cluster.pubsub_channels(&beginning).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn plain_channels_are_used_when_they_are_asked_for() {
    let (cluster, sharded) = shared().await;
    let name = cluster.name_on(1, &beginning()).await;
    let plain = RedisStore::cluster(cluster.urls()).sharded_channels(false);
    let plain = plain.connect().await.unwrap();
    let waiter = patient(name.as_str(), LockMode::Reentrant);
    let mut by_plain = plain.subscribe(&waiter).await.unwrap();
    let mut by_sharded = sharded.subscribe(&waiter).await.unwrap();

    let monitors = watch(cluster).await;
    let holder = attempt(name.as_str(), LockMode::Reentrant);
    assert!(asks(&plain, &holder).await && releases(&plain, &holder).await);
    woken(&mut by_plain).await;
    asleep(&mut by_sharded).await;
    let holder = attempt(name.as_str(), LockMode::Reentrant);
    assert!(asks(&sharded, &holder).await && releases(&sharded, &holder).await);
    woken(&mut by_sharded).await;
    asleep(&mut by_plain).await;
    let sent = sent(&monitors, &name).await;
    assert!(sent[1].iter().any(|line| line.contains("\"PUBLISH\"")));
    assert!(sent[1].iter().any(|line| line.contains("\"SPUBLISH\"")));
}

#[tokio::test]
async fn many_listeners_are_one_subscription_on_one_connection_for_each_server() {
    let cluster = RedisCluster::start().await;
    let store = store(&cluster).await;
    let mut listeners = Vec::new();
    for node in 0..3 {
        for n in 0..3 {
            let name = cluster.name_on(node, &format!("k{n}-")).await;
            for _ in 0..5 {
                let waiter = patient(name.as_str(), LockMode::Write);
                listeners.push(store.subscribe(&waiter).await.unwrap());
            }
        }
    }
    let channels = cluster.pubsub_channels("").await;
    assert_eq!(channels.len(), 9);
    assert!(channels.values().all(|listeners| *listeners == 1));
    for node in cluster.masters() {
        let clients = node.client_list().await;
        let listening = clients.iter().filter(|client| client["ssub"] != "0");
        assert_eq!(listening.count(), 1);
    }

    // Every connection that breaks is replaced, and whoever listened by it is woken.
    for node in cluster.masters() {
        for client in node.client_list().await {
            if client["ssub"] != "0" {
                node.ask::<()>(&["CLIENT", "KILL", "ID", &client["id"]])
                    .await;
            }
        }
    }
    for listener in &mut listeners {
        woken(listener).await;
    }
    assert_eq!(cluster.pubsub_channels("").await, channels);

    drop(listeners);
    eventually("nobody listens", LIMIT, async || {
        cluster.pubsub_channels("").await.is_empty()
    })
    .await;
    drop(store);
    for node in cluster.masters() {
        eventually("no connection is left", LIMIT, async || {
            let clients = node.client_list().await;
            let ours = clients.iter().filter(|client| client["flags"] == "N");
            ours.count() == 0
        })
        .await;
    }
}
