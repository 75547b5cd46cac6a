//! Every operation finds the server of its key.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower_distributed_lock::store::Feature;

use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{Fencing, HoldStatus, Inspect, LockStore, Record, Renewal};
use tower_distributed_lock::{LockClient, LockError, LockKey, LockMode, RedisStore};
use tower_distributed_lock_testing::{Faults, FaultyStore};

use super::{LIMIT, beginning, sent, shared, watch};
use crate::redis_store::{
    LEASE, MODES, asks, attempt, error_kind, fenced, holds, patient, releases,
};
use crate::support::{Proxy, RedisServer, ReservedPort};

#[tokio::test]
async fn every_operation_works_on_every_server() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    for node in 0..3 {
        let name = cluster.name_on(node, &beginning).await;
        for name in [name.clone(), format!("a{{{name}}}b")] {
            for mode in MODES {
                everything(&store, &name, mode).await;
            }
        }
    }
    // Tombstones, records and counters remain for a while.
    let mut left = cluster.dump(&beginning).await;
    left.retain(|key, _| !key.starts_with("tower_lock_void:"));
    left.retain(|key, _| !key.starts_with("tower_lock_busy:"));
    left.retain(|key, _| !key.starts_with("tower_lock_record:"));
    left.retain(|key, _| !key.starts_with("redisson_lock_token:"));
    assert!(left.is_empty(), "{left:#?}");
}

/// L4. The first future asks which server has which slots, and which channels they know. Nothing polls it afterwards.
#[tokio::test]
async fn a_future_that_is_not_polled_keeps_no_other_waiting() {
    let (cluster, _) = shared().await;
    let store = RedisStore::cluster(cluster.urls()).connect_lazy().unwrap();
    let beginning = beginning();
    let [one, other] = ["one", "other"].map(|name| format!("{beginning}{name}"));
    let [one, other] = [one, other].map(|name| attempt(name, LockMode::Write));
    let mut asking = pin!(asks(&store, &one));
    assert!(poll!(asking.as_mut()).is_pending());
    let asked = timeout(LIMIT, asks(&store, &other)).await;
    assert!(asked.expect("it waits for the other future"));
    assert!(asking.await);
    for attempt in [&one, &other] {
        assert!(releases(&store, attempt).await);
    }
}

/// L4. A caller's question about the slots is under way on a runtime that is not driven any more, as between two calls of
/// `block_on`.
#[tokio::test]
async fn a_runtime_that_is_not_driven_keeps_no_caller_of_another_waiting_for_the_slots() {
    let (cluster, _) = shared().await;
    let proxy = Proxy::in_front_of(&cluster.nodes[0]).await;
    let store = RedisStore::cluster([proxy.url()]).connect_timeout(Duration::from_secs(2));
    let store = store.connect_lazy().unwrap();
    let hold = attempt(beginning() + "driven", LockMode::Write);
    proxy.replies.hold();
    let (asking, asked) = (store.clone(), hold.clone());
    let first = spawn_blocking(move || {
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        let asking = async { timeout(Duration::from_millis(300), asking.acquire(&asked)).await };
        first.block_on(asking).expect_err("no server answers");
        first
    });
    let first = first.await.unwrap();
    proxy.replies.release();
    let granted = timeout(LIMIT, asks(&store, &hold)).await;
    first.shutdown_background();
    assert!(granted.expect("it waits for the other runtime"));
    assert!(releases(&store, &hold).await);
}

async fn everything(store: &RedisStore, name: &str, mode: LockMode) {
    let key = LockKey::new(name);
    let excluding = mode != LockMode::Read;
    let holder = match excluding {
        true => fenced(patient(name, mode), Fencing::default()),
        false => patient(name, mode),
    };
    assert!(asks(store, &holder).await, "{name} {mode:?}");
    assert!(asks(store, &attempt(name, mode)).await != excluding);
    let renewal = Renewal::new(holder.hold.clone(), LEASE);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [HoldStatus::Held]);
    assert!(holds(store, &holder).await);
    let seen = store.inspect(&key).await.unwrap();
    let ours = holder.hold.id.to_string();
    assert!(seen.holders.iter().any(|holder| holder.id == ours));
    let value: &[u8] = b"done";
    if excluding {
        let record = Record::new(value, Duration::from_secs(60));
        let released = store.release(&holder.hold, Some(&record)).await;
        assert_eq!(released.unwrap().status, HoldStatus::Held);
        assert_eq!(store.record(&key).await.unwrap().as_deref(), Some(value));
    } else {
        assert!(releases(store, &holder).await);
    }

    let late = patient(name, mode);
    store.withdraw(&late, true).await.unwrap();
    assert_eq!(error_kind(store, &late).await, StoreErrorKind::Refused);
    let held = attempt(name, mode);
    let _ = store.force_unlock(&key).await.unwrap();
    assert!(asks(store, &held).await);
    assert!(store.force_unlock(&key).await.unwrap());
    assert!(!releases(store, &held).await);
}

#[tokio::test]
async fn a_name_that_would_use_several_slots_is_refused_with_a_remedy() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    let locks = LockClient::new(store.clone());
    for form in ["{}*", "na{me*", "a}b*", "{}{t}*"] {
        let name = form.replace('*', &beginning);
        for mode in MODES {
            let refused = locks.lock(&name).mode(mode).await.unwrap_err();
            let LockError::Unsupported(why) = refused else {
                panic!("{name}: {refused:?}");
            };
            assert!(why.reason().contains("without braces"), "{why}");
            // A direct call of the store is refused.
            let direct = attempt(name.as_str(), mode);
            assert_eq!(error_kind(&store, &direct).await, StoreErrorKind::Refused);
            assert!(store.subscribe(&direct).await.is_err());
        }
        let several = locks.lock_all([name.as_str(), "fine"]).await;
        assert!(matches!(several, Err(LockError::Unsupported(_))));
    }
    assert!(cluster.dump(&beginning).await.is_empty());
}

#[tokio::test]
async fn a_store_with_faults_shows_the_properties_of_its_inner_store() {
    let (_, store) = shared().await;
    let faulty = FaultyStore::new(store.clone(), Faults::none(), 0);
    let names = ["a", "b", "c"].map(LockKey::new);
    let parts = names.each_ref().map(|name| faulty.partition(name));
    assert_eq!(parts, names.each_ref().map(|name| store.partition(name)));
    assert!(parts.iter().all(Result::is_ok));
    assert!(parts[0] != parts[1] && parts[1] != parts[2]);
    let scattered = LockKey::new("a}b");
    assert_eq!(faulty.partition(&scattered), store.partition(&scattered));
    let refused = faulty.partition(&scattered).unwrap_err();
    assert_eq!(refused.feature(), Feature::Key);
    assert!(faulty.capabilities().runtime().is_some());
    let (seen, there) = (faulty.audit().await.unwrap(), store.audit().await.unwrap());
    assert_eq!(seen.deployment, there.deployment);
}

/// Otherwise each slot's holds are renewed by a call of their own, and a server that fails has thousands of partitions.
#[tokio::test]
async fn the_locks_of_one_server_are_one_partition() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    let mut partitions = Vec::new();
    for node in 0..3 {
        let mut of_node = Vec::new();
        for n in 0..8 {
            let name = cluster.name_on(node, &format!("{beginning}{n}-")).await;
            of_node.push(store.partition(&LockKey::new(name)).unwrap());
        }
        of_node.dedup();
        assert_eq!(of_node.len(), 1, "node {node}: {of_node:?}");
        partitions.extend(of_node);
    }
    partitions.sort_unstable();
    partitions.dedup();
    assert_eq!(partitions.len(), 3);
}

#[tokio::test]
async fn one_of_many_servers_is_enough_to_find_the_others() {
    let (cluster, _) = shared().await;
    let unused = ReservedPort::reserve().unwrap();
    let unused = format!("redis://{}", unused.address());
    for seed in cluster.urls() {
        let store = RedisStore::cluster([unused.clone(), seed]);
        let store = store.connect().await.unwrap();
        let beginning = beginning();
        for node in 0..3 {
            let held = attempt(cluster.name_on(node, &beginning).await, LockMode::Reentrant);
            assert!(asks(&store, &held).await && releases(&store, &held).await);
        }
    }
    let error = RedisStore::cluster([unused]).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
}

#[tokio::test]
async fn a_store_that_is_set_up_wrongly_says_so() {
    let server = RedisServer::start().await;
    let error = RedisStore::cluster([server.url()]).connect().await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("cluster support disabled"), "{why}");

    let url = server.url();
    for store in [
        RedisStore::cluster(Vec::<String>::new()),
        RedisStore::cluster([format!("{url}/3")]),
        RedisStore::cluster([server.unix_url()]),
        RedisStore::cluster(["not an address"]),
        RedisStore::builder(url.as_str()).sharded_channels(true),
    ] {
        let error = store.connect_lazy().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
    }
}

#[tokio::test]
async fn a_batch_is_sent_as_one_script_for_each_slot_and_a_hundred_holds() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    let mut held = Vec::new();
    for n in 0..120 {
        held.push(attempt(
            format!("{{{beginning}same}}{n}"),
            LockMode::Reentrant,
        ));
    }
    for n in 0..5 {
        held.push(attempt(format!("{beginning}{n}"), LockMode::Write));
    }
    for held in &held {
        assert!(asks(&store, held).await);
    }
    // A hold that is gone is distinguished from the others.
    assert!(releases(&store, &held[122]).await);
    let mut slots = Vec::new();
    for held in &held[120..] {
        slots.push(cluster.slot(held.hold.key.as_str()).await);
    }
    slots.push(cluster.slot(held[0].hold.key.as_str()).await);
    slots.sort_unstable();
    slots.dedup();

    let renewals: Vec<_> = held
        .iter()
        .map(|held| Renewal::new(held.hold.clone(), LEASE))
        .collect();
    // So that the servers know the script.
    store.renew(&renewals).await.unwrap();
    let monitors = watch(cluster).await;
    let standings = store.renew(&renewals).await.unwrap();
    for (place, standing) in standings.into_iter().enumerate() {
        assert_eq!(standing == HoldStatus::Held, place != 122);
    }
    let by_sha = |line: &&String| line.contains("EVALSHA");
    let sent = sent(&monitors, &beginning).await.concat();
    assert_eq!(sent.iter().filter(by_sha).count(), slots.len() + 1);

    for (place, held) in held.iter().enumerate() {
        assert_eq!(releases(&store, held).await, place != 122);
    }
}
