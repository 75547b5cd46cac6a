//! `All` requires as many replicas as the master has.

use std::time::Duration;

use tower_distributed_lock::store::redis::Replicas;
use tower_distributed_lock::store::{LockStore, LockStoreExt, Renewal};
use tower_distributed_lock::{LockMode, RedisStore};

use super::{LIMIT, SHORT, is_unacknowledged, patient_store};
use crate::redis_store::{LEASE, asks, attempt, releases};
use crate::support::{Ending, Replicated, eventually};

async fn works(store: &RedisStore) {
    eventually("it works", LIMIT, async || {
        let hold = attempt("k", LockMode::Reentrant);
        store.acquire(&hold).await?;
        store.release_one(&hold.hold).await
    })
    .await;
}

#[tokio::test]
async fn a_server_that_never_had_a_replica_needs_none() {
    let replicated = Replicated::start(0).await;
    let store = patient_store(&replicated, Replicas::All, Duration::from_secs(30)).await;
    let hold = attempt("k", LockMode::Write);
    assert!(asks(&store, &hold).await && releases(&store, &hold).await);
}

#[tokio::test]
async fn replicas_may_leave_and_return_but_the_last_one_is_required() {
    let mut replicated = Replicated::start(2).await;
    let store = patient_store(&replicated, Replicas::All, SHORT).await;
    works(&store).await;
    replicated.servers[1].kill9();
    works(&store).await;
    // The other one is asked nevertheless.
    replicated.servers[2].pause();
    is_unacknowledged(store.acquire(&attempt("k", LockMode::Write)).await);
    replicated.servers[2].resume();
    works(&store).await;

    replicated.servers[2].kill9();
    eventually("the master is alone", LIMIT, async || {
        let (_, _, replicas): (String, u64, Vec<redis::Value>) =
            replicated.master().ask(&["ROLE"]).await;
        replicas.is_empty()
    })
    .await;
    is_unacknowledged(store.acquire(&attempt("k", LockMode::Write)).await);
    // A new store sees a server without replicas.
    let newcomer = patient_store(&replicated, Replicas::All, SHORT).await;
    works(&newcomer).await;

    // After the restart, it does not follow the master any more.
    replicated.servers[2].restart().await;
    let port = replicated.links[1].port().to_string();
    let () = replicated.servers[2]
        .ask(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    works(&store).await;
}

#[tokio::test]
async fn a_new_replica_is_counted_from_then_on() {
    let mut replicated = Replicated::start(2).await;
    let () = replicated.servers[2].ask(&["REPLICAOF", "NO", "ONE"]).await;
    replicated.until_replicas(1).await;
    let store = patient_store(&replicated, Replicas::All, SHORT).await;
    works(&store).await;
    let port = replicated.links[1].port().to_string();
    let () = replicated.servers[2]
        .ask(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    replicated.until_replicas(2).await;
    replicated.servers[2].pause();
    is_unacknowledged(store.acquire(&attempt("k", LockMode::Write)).await);
    replicated.servers[2].resume();
    works(&store).await;
}

#[tokio::test]
async fn a_master_that_loses_its_replicas_confirms_nothing_any_more() {
    let replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, Replicas::All, SHORT).await;
    let hold = attempt("held", LockMode::Write);
    eventually("it is granted", LIMIT, async || store.acquire(&hold).await).await;
    // It notices the end of the link, as after the promotion of its replica, and counts none.
    replicated.links[0].refuse().await;
    assert!(replicated.links[0].cut(Ending::Close).await > 0);
    is_unacknowledged(store.check(std::slice::from_ref(&hold.hold)).await);
    is_unacknowledged(store.release_one(&hold.hold).await);
}

/// S1, S5. What one connection has seen holds for those that are opened later: the one for renewals, and the second one for
/// commands.
#[tokio::test]
async fn a_master_that_lost_its_replicas_confirms_nothing_on_a_new_connection() {
    let replicated = Replicated::start(1).await;
    let store = RedisStore::builder(replicated.master().url())
        .replicas(Replicas::All)
        .replica_timeout(SHORT)
        .connect_lazy()
        .unwrap();
    let hold = attempt("held", LockMode::Write);
    eventually("it is granted", LIMIT, async || store.acquire(&hold).await).await;
    replicated.links[0].refuse().await;
    assert!(replicated.links[0].cut(Ending::Close).await > 0);
    replicated.until_replicas(0).await;
    is_unacknowledged(store.renew(&[Renewal::new(hold.hold.clone(), LEASE)]).await);
    // About half of the keys belong to a connection that is opened for the first of them.
    for n in 0..16 {
        let hold = attempt(format!("k{n}"), LockMode::Write);
        is_unacknowledged(store.acquire(&hold).await);
    }
}
