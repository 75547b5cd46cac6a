//! The master changes, and all clients continue.

use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, LockStore, Renewal};
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, RedisStore};

use super::{
    LIMIT, client, store, until_connections, until_it_holds, until_moved, until_used, works,
};
use crate::redis_store::{MODES, asks, attempt, error_kind, patient, woken};
use crate::support::{Console, Peer, RedisSentinels, eventually};

/// Longer than the tests, so that no lock is free because of an expired lease.
const LONG: Lease = Lease::Renewed(Duration::from_secs(300));

fn waiting(
    locks: &LockClient,
    key: &'static str,
) -> tokio::task::JoinHandle<Result<(), LockError>> {
    let locks = locks.clone();
    tokio::spawn(async move {
        let guard = locks.lock(key).lease(LONG).wait(LIMIT).await?;
        guard.release().await
    })
}

#[tokio::test]
async fn waiters_and_new_requests_go_on_when_the_master_is_killed() {
    let mut sentinels = RedisSentinels::start().await;
    let (a, b) = (client(&sentinels).await, client(&sentinels).await);
    let guard = a.lock("held").lease(LONG).await.unwrap();
    let waiter = waiting(&b, "held");
    let replicated = &mut sentinels.replicated;
    until_connections(replicated.master(), 5).await;
    for replica in &replicated.servers[1..] {
        until_it_holds(replica, "held").await;
    }

    replicated.servers[0].kill9();
    // A new request while there is no master.
    let fresh = a.lock("fresh").wait(LIMIT).await.unwrap();
    fresh.release().await.unwrap();
    let master = sentinels.until_another_than(0).await;
    until_used(&sentinels.replicated.servers[master], 5).await;
    assert!(!waiter.is_finished(), "the hold survived");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();

    // The former master returns as a replica, and no client is misled.
    sentinels.replicated.servers[0].restart().await;
    let hold = a.lock("again").wait(LIMIT).await.unwrap();
    let refused = b.lock("again").wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, LockError::Busy { .. }), "{refused:?}");
    hold.release().await.unwrap();
}

#[tokio::test]
async fn holds_that_survived_are_renewed_and_released_in_the_new_master_in_every_mode() {
    let mut sentinels = RedisSentinels::start().await;
    let store = store(&sentinels).await;
    let all = MODES.map(|mode| attempt(format!("{mode:?}"), mode));
    for attempt in &all {
        assert!(asks(&store, attempt).await);
    }
    for replica in &sentinels.replicated.servers[1..] {
        until_it_holds(replica, "Write").await;
    }
    sentinels.replicated.servers[0].kill9();
    let lease = Duration::from_secs(600);
    let renewals = all.clone().map(|attempt| Renewal::new(attempt.hold, lease));
    let renewed = eventually("there is a master", LIMIT, async || {
        store.renew(&renewals).await
    });
    assert_eq!(renewed.await, [HoldStatus::Held; 4]);
    let master = sentinels.until_another_than(0).await;
    let dump = sentinels.replicated.servers[master].dump().await;
    for attempt in &all {
        let ttl = dump[attempt.hold.key.as_str()].ttl.unwrap();
        assert!(ttl > Duration::from_secs(300), "{ttl:?}");
        // Renewals have a connection of their own, which may have been the first to find the new master.
        let released = eventually("the new master is found", LIMIT, async || {
            store.release(&attempt.hold, None).await
        });
        assert_eq!(released.await.status, HoldStatus::Held);
    }
}

#[tokio::test]
async fn a_planned_failover_is_followed_while_holding_and_waiting() {
    let sentinels = RedisSentinels::start().await;
    let (a, b) = (client(&sentinels).await, client(&sentinels).await);
    let guard = a.lock("k").lease(LONG).await.unwrap();
    let waiter = waiting(&b, "k");
    until_connections(sentinels.replicated.master(), 5).await;
    for replica in &sentinels.replicated.servers[1..] {
        until_it_holds(replica, "k").await;
    }
    let master = sentinels.fail_over().await;
    // The former master is alive and accepts commands for a while: no client may send it one.
    until_moved(&sentinels.replicated, master, 5).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// The store watches the sentinels on a thread of its own: a runtime that connected may end.
#[tokio::test]
async fn a_former_master_is_left_although_the_runtime_that_connected_has_ended() {
    let sentinels = RedisSentinels::start().await;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let connecting = RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME).connect();
    let store = runtime.spawn(connecting).await.unwrap().unwrap();
    let waiter = patient("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    runtime.shutdown_background();
    let former = sentinels.replicated.master();
    let () = former
        .ask(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"])
        .await;
    let _ = sentinels.fail_over().await;
    // The store is not used meanwhile: the change of the master alone wakes its listeners.
    woken(&mut wakeups).await;
    until_connections(former, 0).await;
    works(&store, "k").await;
}

#[tokio::test]
async fn a_former_master_that_could_not_be_demoted_is_left() {
    let sentinels = RedisSentinels::start().await;
    let store = store(&sentinels).await;
    let waiter = patient("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    let former = sentinels.replicated.master();
    until_connections(former, 3).await;
    // It continues as a master, and closes no connection.
    let () = former
        .ask(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"])
        .await;
    let master = sentinels.fail_over().await;
    until_connections(&sentinels.replicated.servers[master], 3).await;
    until_connections(former, 0).await;
    let (role, _, _): (String, u64, Vec<redis::Value>) = former.ask(&["ROLE"]).await;
    assert_eq!(role, "master");
    // Its listeners are woken, so that they ask again.
    woken(&mut wakeups).await;
    works(&store, "k").await;
}

#[tokio::test]
async fn a_replica_that_acknowledges_is_one_of_the_new_master() {
    let mut sentinels = RedisSentinels::start().await;
    let store = RedisStore::sentinel(sentinels.urls(), RedisSentinels::NAME)
        .replicas(1)
        .connect()
        .await
        .unwrap();
    let hold = attempt("k", LockMode::Reentrant);
    eventually("it is granted", LIMIT, async || store.acquire(&hold).await).await;
    // Either of them may be promoted.
    sentinels.replicated.until_replicas(2).await;
    sentinels.replicated.servers[0].kill9();
    let ended = eventually("it is released", LIMIT, async || {
        store.release(&hold.hold, None).await
    });
    assert_eq!(ended.await.status, HoldStatus::Held);
    works(&store, "other").await;
    let master = sentinels.until_another_than(0).await;
    assert_eq!(sentinels.replicated.servers[master].dump().await.len(), 0);
}

#[tokio::test]
async fn between_two_masters_calls_fail_as_transient() {
    let mut sentinels = RedisSentinels::start().await;
    let store = store(&sentinels).await;
    works(&store, "k").await;
    sentinels.replicated.servers[0].kill9();
    // The first call may have been under way.
    let _ = store.acquire(&attempt("other", LockMode::Reentrant)).await;
    let kind = error_kind(&store, &attempt("other", LockMode::Reentrant)).await;
    assert_eq!(kind, StoreErrorKind::Transient);
    works(&store, "other").await;
}

/// The role: a process that counts the failovers of the servers that its arguments name, and reports the first.
pub(crate) async fn bystander(mut console: Console) {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().expect("it is the first");
    let told = console.hear().await;
    let (deployment, urls) = told
        .split_once(' ')
        .expect("a deployment and its addresses");
    let urls = urls.split(',');
    let store = match deployment {
        "sentinel" => RedisStore::sentinel(urls, RedisSentinels::NAME),
        _ => RedisStore::cluster(urls),
    };
    let locks = LockClient::new(store.connect().await.expect("it is whole"));
    console.say("ready");
    loop {
        // On every server of a Cluster.
        for n in 0..16 {
            drop(
                locks
                    .lock(format!("bystander:{n}"))
                    .wait(Duration::ZERO)
                    .await,
            );
        }
        for (key, _, _, value) in snapshots.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            if key.name() == "distributed_lock_failovers_total"
                && let DebugValue::Counter(count @ 1..) = value
            {
                let labels: Vec<_> = key.labels().map(|label| label.value()).collect();
                console.say(format!("{} {count}", labels.join(" ")));
                console.hear().await;
            }
        }
        console.say("not yet");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What a bystander has seen at last.
pub(crate) async fn seen_by(bystander: &mut Peer) -> String {
    let seen = async {
        loop {
            match bystander.hear().await {
                said if said == "not yet" => {}
                seen => return seen,
            }
        }
    };
    tokio::time::timeout(LIMIT, seen).await.expect("in time")
}

#[tokio::test]
async fn a_failover_is_counted() {
    let mut sentinels = RedisSentinels::start().await;
    let mut bystander = Peer::start("bystander");
    bystander.tell(format!("sentinel {}", sentinels.urls().join(",")));
    assert_eq!(bystander.hear().await, "ready");
    sentinels.replicated.servers[0].kill9();
    assert_eq!(seen_by(&mut bystander).await, "sentinel 1");
}
