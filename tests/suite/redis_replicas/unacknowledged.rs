//! Too few replicas: grants are withdrawn, and nothing else is confirmed.

use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;
use tower_distributed_lock::store::Want;

use tokio::runtime::Builder;
use tokio::time::timeout;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{LockStore, Record, Renewal};
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, RedisStore};

use super::{LIMIT, SHORT, is_unacknowledged, patient_store, store};
use crate::redis_store::{MODES, asks, attempt, patient, releases, woken};
use crate::support::{Monitor, RedisServer, Replicated, eventually};

/// The keys of the master, without the mark and the tombstones.
async fn locks_in(server: &RedisServer) -> Vec<String> {
    let names = server.dump().await.into_keys();
    names
        .filter(|name| !name.starts_with("tower_lock_"))
        .collect()
}

#[tokio::test]
async fn a_grant_that_too_few_acknowledge_is_taken_back_and_fails() {
    let mut replicated = Replicated::start(2).await;
    for replicas in [2, 3] {
        let strict = patient_store(&replicated, replicas, SHORT).await;
        let modest = store(&replicated, 1).await;
        replicated.servers[1].pause();
        for mode in MODES {
            let key = format!("{mode:?}");
            is_unacknowledged(strict.acquire(&attempt(key.as_str(), mode)).await);
            is_unacknowledged(strict.acquire(&patient(key.as_str(), mode)).await);
            assert_eq!(locks_in(replicated.master()).await, Vec::<String>::new());
            // One of them is still there.
            let hold = attempt(key, mode);
            assert!(asks(&modest, &hold).await && releases(&modest, &hold).await);
        }
        let both = ["a", "b"].map(|key| attempt(key, LockMode::Reentrant));
        is_unacknowledged(strict.acquire_several(&both, Want::All).await);
        is_unacknowledged(strict.acquire_several(&both, Want::Any).await);
        assert_eq!(locks_in(replicated.master()).await, Vec::<String>::new());
        replicated.servers[1].resume();
        if replicas != 3 {
            eventually("it works again", LIMIT, async || {
                let hold = attempt("k", LockMode::Reentrant);
                strict.acquire(&hold).await?;
                strict.release(&hold.hold, None).await
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_grant_that_is_taken_back_wakes_waiters() {
    let replicated = Replicated::start(1).await;
    let strict = patient_store(&replicated, 2, SHORT).await;
    let plain = store(&replicated, 0).await;
    let waiter = attempt("k", LockMode::Reentrant);
    let mut wakeups = plain.subscribe(&waiter).await.unwrap();
    is_unacknowledged(strict.acquire(&attempt("k", LockMode::Reentrant)).await);
    woken(&mut wakeups).await;
    assert!(asks(&plain, &waiter).await);
}

#[tokio::test]
async fn a_release_that_too_few_acknowledge_has_ended_the_hold_and_confirms_nothing() {
    let mut replicated = Replicated::start(2).await;
    let store = patient_store(&replicated, 2, SHORT).await;
    let holds = MODES.map(|mode| attempt(format!("{mode:?}"), mode));
    for hold in &holds {
        eventually("it is granted", LIMIT, async || store.acquire(hold).await).await;
    }
    replicated.servers[2].pause();
    for hold in &holds[..3] {
        is_unacknowledged(store.release(&hold.hold, None).await);
        assert!(!releases(&store, hold).await, "it is gone");
    }
    let record = Record::new("done", Duration::from_secs(60));
    is_unacknowledged(store.release(&holds[3].hold, Some(&record)).await);
    assert_eq!(locks_in(replicated.master()).await, Vec::<String>::new());
    replicated.servers[2].resume();
}

#[tokio::test]
async fn a_caller_gets_the_kind_unacknowledged_with_the_counts() {
    let mut replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, SHORT).await;
    let locks = LockClient::new(store);
    let lease = Lease::Fixed(Duration::from_secs(300));
    let guard = eventually("it is granted", LIMIT, async || {
        locks.lock("k").lease(lease).await
    })
    .await;
    replicated.servers[1].pause();
    let errors = [
        locks
            .lock("other")
            .wait(Duration::ZERO)
            .await
            .map(drop)
            .unwrap_err(),
        guard.release().await.unwrap_err(),
    ];
    for error in errors {
        let (LockError::Unavailable(cause) | LockError::Unconfirmed(cause)) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(cause.kind(), StoreErrorKind::Unacknowledged);
        let text = cause.source().unwrap().to_string();
        assert!(text.contains("0 of 1 replicas"), "{text}");
    }
    replicated.servers[1].resume();
    eventually("nothing is left", LIMIT, async || {
        locks_in(replicated.master()).await.is_empty()
    })
    .await;
}

/// A failover takes longer than two attempts: the replicas come back within the wait.
#[tokio::test]
async fn a_request_waits_for_replicas_as_long_as_its_wait_lasts() {
    let mut replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, SHORT).await;
    let locks = LockClient::new(store);
    replicated.servers[1].pause();
    let waiting = tokio::spawn(locks.lock("k").wait(LIMIT).into_future());
    tokio::time::sleep(SHORT * 6).await;
    assert!(!waiting.is_finished(), "it gave up");
    replicated.servers[1].resume();
    let guard = waiting.await.unwrap().expect("a replica is back");
    guard.release().await.expect("it is acknowledged");
}

#[tokio::test]
async fn a_renewal_without_acknowledgements_moves_no_deadline() {
    let mut replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, SHORT).await;
    let locks = LockClient::new(store);
    let lease = Duration::from_secs(3);
    let guard = eventually("it is granted", LIMIT, async || {
        locks.lock("k").lease(Lease::Renewed(lease)).await
    })
    .await;
    // Renewed at least once.
    tokio::time::sleep(lease).await;
    assert!(!guard.is_lost());
    replicated.servers[1].pause();
    let until = guard.deadline();
    tokio::time::timeout(LIMIT, guard.lost())
        .await
        .expect("it is lost");
    // A renewal that was under way when the replica stopped may still have been acknowledged.
    assert!(guard.deadline() <= until + lease / 3, "the deadline moved");
    replicated.servers[1].resume();
}

#[tokio::test]
async fn a_short_response_timeout_does_not_cut_the_replicas_off() {
    let mut replicated = Replicated::start(1).await;
    let store = RedisStore::builder(replicated.master().url())
        .replicas(1)
        .response_timeout(Duration::from_millis(500))
        .replica_timeout(Duration::from_secs(2))
        .connect()
        .await
        .unwrap();
    replicated.servers[1].pause();
    let all = (0..8).map(async |n| {
        let hold = attempt(format!("k{n}"), LockMode::Reentrant);
        is_unacknowledged(store.acquire(&hold).await);
    });
    futures_util::future::join_all(all).await;
    replicated.servers[1].resume();
}

#[tokio::test]
async fn a_user_who_may_not_wait_holds_nothing() {
    let rule = "some on >secret ~* &* +@all";
    let server = RedisServer::builder().config("user", rule).start().await;
    let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
    let store = RedisStore::builder(url).replicas(1);
    let store = store.connect().await.unwrap();
    // Without it, no new connection would be used.
    let mut redis = server.connection().await;
    let taken = redis::cmd("ACL")
        .arg(&["SETUSER", "some", "-wait"])
        .to_owned();
    taken.exec_async(&mut redis).await.unwrap();
    let error = store
        .acquire(&attempt("k", LockMode::Write))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unacknowledged);
    let text = error.source().unwrap().to_string();
    assert!(text.contains("'wait'"), "{text}");
    assert_eq!(locks_in(&server).await, Vec::<String>::new());
}

/// `WAIT` blocks every later command on its connection, so renewals have a connection of their own.
#[tokio::test]
async fn a_renewal_that_too_few_acknowledge_does_not_block_the_callers_connections() {
    let replicated = Replicated::start(0).await;
    let plain = store(&replicated, 0).await;
    let strict = patient_store(&replicated, 1, SHORT).await;
    let hold = attempt("k", LockMode::Reentrant);
    assert!(asks(&plain, &hold).await);
    let renewal = Renewal::new(hold.hold.clone(), Duration::from_secs(30));
    let monitor = replicated.master().monitor().await;
    is_unacknowledged(strict.renew(&[renewal]).await);
    let lines = monitor.lines().await;
    let waits = lines.iter().filter(|line| line.contains("\"WAIT\" \"1\""));
    assert_eq!(waits.count(), 1, "{lines:#?}");
}

async fn until_it_waits_for_a_replica(monitor: &Monitor<'_>) {
    eventually("it waits for a replica", LIMIT, async || {
        let lines = monitor.lines().await;
        lines.iter().any(|line| line.contains("\"WAIT\""))
    })
    .await;
}

/// L4. The runtime that drives the connection is blocked after it has delivered the answer of the caller's script.
#[tokio::test]
async fn a_runtime_that_is_blocked_keeps_no_caller_of_another_waiting() {
    let replicated = Replicated::start(1).await;
    let builder = RedisStore::builder(replicated.master().url())
        .replicas(1)
        .response_timeout(Duration::from_secs(3))
        .replica_timeout(Duration::from_secs(1));
    let first = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let first = first.unwrap();
    let store = first.spawn(builder.connect()).await.unwrap().unwrap();
    replicated.hold_links();
    let monitor = replicated.master().monitor().await;
    let asking = async move { store.acquire(&attempt("k", LockMode::Reentrant)).await };
    let asking = tokio::spawn(timeout(LIMIT, asking));
    until_it_waits_for_a_replica(&monitor).await;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    first.spawn(async move { ended.recv() });
    let answer = asking.await.unwrap();
    drop(end);
    first.shutdown_background();
    let unknown = answer.expect("it waits for the other runtime").unwrap_err();
    // Its withdrawal gets no answer either.
    assert_eq!(unknown.kind(), StoreErrorKind::Unanswered, "{unknown:?}");
}
