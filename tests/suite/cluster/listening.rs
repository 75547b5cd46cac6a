//! Wake-ups in a Cluster (PROTOCOL 1.9).

use std::collections::BTreeMap;

use tower_distributed_lock::store::LockStore;
use tower_distributed_lock::{LockMode, RedisStore};

use super::{LIMIT, beginning, channels_on, sent, sharded, shared, store, watch};
use crate::redis_store::{
    MODES, asks, asleep, attempt, patient, releases, the_line_is_woken, woken,
};
use crate::support::{RedisCluster, eventually};

#[tokio::test]
async fn wake_ups_travel_on_sharded_channels_of_the_slots_master() {
    let (cluster, store) = shared().await;
    let expected = match sharded(cluster).await {
        true => [("SPUBLISH", 1), ("PUBLISH", 0)],
        false => [("SPUBLISH", 0), ("PUBLISH", 1)],
    };
    let beginning = beginning();
    for node in 0..3 {
        for mode in MODES {
            let name = cluster.name_on(node, &beginning).await;
            let holder = attempt(name.as_str(), mode);
            let waiter = match mode {
                // Behind a reader, it would also listen on Redisson's channel.
                LockMode::Read => attempt(name.as_str(), LockMode::Write),
                mode => patient(name.as_str(), mode),
            };
            assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
            let mut wakeups = store.subscribe(&waiter).await.unwrap();
            let channels = channels_on(&cluster.nodes[node], &name).await;
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
            // Redisson's channel, and that of the first in line; a fair waiter has the only one.
            let messages = match mode {
                LockMode::Fair | LockMode::Read => 1,
                LockMode::Reentrant | LockMode::Write | LockMode::Permit(_) => 2,
            };
            for (command, times) in expected {
                assert_eq!(told(command), messages * times, "{mode:?}: {command}");
            }
            store.withdraw(&waiter, false).await.unwrap();
        }
    }
    eventually("no client listens", LIMIT, async || {
        cluster.pubsub_channels(&beginning).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_forced_unlock_and_a_withdrawal_wake_the_next_in_line() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    for mode in MODES.into_iter().chain([LockMode::permits(1)]) {
        let name = cluster.name_on(2, &beginning).await;
        the_line_is_woken(&store, &store, &name, mode).await;
    }
}

#[tokio::test]
async fn plain_channels_are_used_when_they_are_asked_for() {
    let (cluster, by_default) = shared().await;
    let sharded = sharded(cluster).await;
    let name = cluster.name_on(1, &beginning()).await;
    let plain = RedisStore::cluster(cluster.urls()).sharded_channels(false);
    let plain = plain.connect().await.unwrap();
    let waiter = attempt(name.as_str(), LockMode::Reentrant);
    let mut by_plain = plain.subscribe(&waiter).await.unwrap();
    let mut otherwise = by_default.subscribe(&waiter).await.unwrap();

    let monitors = watch(cluster).await;
    let holder = attempt(name.as_str(), LockMode::Reentrant);
    assert!(asks(&plain, &holder).await && releases(&plain, &holder).await);
    woken(&mut by_plain).await;
    match sharded {
        true => asleep(&mut otherwise).await,
        false => woken(&mut otherwise).await,
    }
    let holder = attempt(name.as_str(), LockMode::Reentrant);
    assert!(asks(&by_default, &holder).await && releases(&by_default, &holder).await);
    woken(&mut otherwise).await;
    match sharded {
        true => asleep(&mut by_plain).await,
        false => woken(&mut by_plain).await,
    }
    let sent = sent(&monitors, &name).await;
    // Scripts publish by `PUBLISH` unless a call names the other command.
    let named = sent[1].iter().filter(|line| line.contains("PUBLISH\""));
    let named: Vec<_> = named.collect();
    assert_eq!(named.len(), if sharded { 2 } else { 0 }, "{named:#?}");
    assert!(named.iter().all(|line| line.contains("\"SPUBLISH\"")));
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
        assert_eq!(clients.into_iter().filter(listens).count(), 1);
    }

    // Every broken connection is replaced, and its listeners are woken.
    for node in cluster.masters() {
        for client in node.client_list().await {
            if listens(&client) {
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
    eventually("no client listens", LIMIT, async || {
        cluster.pubsub_channels("").await.is_empty()
    })
    .await;
    drop(store);
    for node in cluster.masters() {
        eventually("no connection is left", LIMIT, async || {
            let clients = node.client_list().await;
            let ours = ["N", "P"];
            !clients
                .iter()
                .any(|client| ours.contains(&client["flags"].as_str()))
        })
        .await;
    }
}

/// Whether a connection is for wake-ups, on channels of either kind.
fn listens(client: &BTreeMap<String, String>) -> bool {
    let listens_to = |sort| client.get(sort).is_some_and(|channels| channels != "0");
    listens_to("sub") || listens_to("ssub")
}
