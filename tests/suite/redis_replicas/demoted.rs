//! A former master that is a replica now. Until it has the data of the new master, it has its own, which is old.

use std::slice;

use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, LockStore, LockStoreExt};
use tower_distributed_lock::{LockClient, LockError, LockMode};

use super::{LIMIT, patient_store, store};
use crate::redis_store::{LEASE, MODES, asks, attempt, configure};
use crate::support::{RedisServer, Replicated, eventually};

/// Makes the server a replica of one that cannot be reached, so that it keeps its data. Its connections stay open.
async fn demote(server: &RedisServer) {
    let () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]).await;
}

/// S5. Another client may have got the key from the new master.
#[tokio::test]
async fn an_owner_check_on_a_replica_confirms_nothing() {
    let replicated = Replicated::start(0).await;
    let store = store(&replicated, 0).await;
    let modes = MODES.into_iter().chain([LockMode::permits(2)]);
    let attempts: Vec<_> = modes.map(|mode| attempt(mode.as_str(), mode)).collect();
    for attempt in &attempts {
        assert!(asks(&store, attempt).await);
    }
    let holds: Vec<_> = attempts.into_iter().map(|attempt| attempt.hold).collect();
    demote(replicated.master()).await;
    let alone = holds.iter().map(slice::from_ref);
    for asked in alone.chain([&holds[..]]) {
        let error = store.check(asked).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Transient, "{error:?}");
    }
    // A new connection leads to the same server.
    let () = replicated.master().ask(&["REPLICAOF", "NO", "ONE"]).await;
    let known = eventually("it answers", LIMIT, async || store.check(&holds).await).await;
    assert_eq!(known, vec![HoldStatus::Held; holds.len()]);
}

/// S5. The permit may be held at the new master, as every hold may be.
#[tokio::test]
async fn a_release_on_a_replica_does_not_say_that_a_hold_is_gone() {
    let replicated = Replicated::start(0).await;
    let store = store(&replicated, 0).await;
    let modes = MODES.into_iter().chain([LockMode::permits(2)]);
    let attempts: Vec<_> = modes.map(|mode| attempt(mode.as_str(), mode)).collect();
    demote(replicated.master()).await;
    for attempt in &attempts {
        let released = store.release(&attempt.hold, None).await;
        let withdrawn = store.withdraw(attempt, false).await;
        for error in [released.map(drop), withdrawn].map(Result::unwrap_err) {
            assert_eq!(
                error.kind(),
                StoreErrorKind::Transient,
                "{attempt:?}: {error:?}"
            );
        }
    }
}

/// S5. Those that ask for such a check: a hand-over, a shared read, and a hold with a minimum.
#[tokio::test]
async fn a_hold_that_lives_on_is_not_confirmed_by_a_replica() {
    let replicated = Replicated::start(0).await;
    let locks = LockClient::new(store(&replicated, 0).await);
    let request = |key: &str| locks.lock(key).wait(LIMIT);
    let handed_over = request("handed over").await.unwrap();
    let [shared, other] = [(); 2].map(|()| request("read").mode(LockMode::Read).acquire());
    let (shared, other) = (shared.await.unwrap(), other.await.unwrap());
    let kept = request("kept").await.unwrap();
    kept.hold_at_least(LEASE).await.unwrap();
    demote(replicated.master()).await;
    let (next, released) = tokio::join!(request("handed over").acquire(), handed_over.release());
    let next = next.expect("the hold was handed over");
    for released in [released, shared.release().await, kept.release().await] {
        let error = released.unwrap_err();
        assert!(matches!(error, LockError::Unconfirmed(_)), "{error:?}");
    }
    assert!(!next.is_lost() && !other.is_lost());
}

/// S5. A server with this setting refuses writes when it may have been replaced, and then its answers do not count either.
#[tokio::test]
async fn an_owner_check_on_a_master_that_lacks_replicas_confirms_nothing() {
    let replicated = Replicated::start(0).await;
    let server = replicated.master();
    if !server.knows_shards().await {
        // Redis 6.2 does not refuse scripts then.
        return;
    }
    let store = store(&replicated, 0).await;
    let hold = attempt("k", LockMode::Write);
    assert!(asks(&store, &hold).await);
    configure(server, "min-replicas-to-write", "1").await;
    let error = store.check(slice::from_ref(&hold.hold)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Transient, "{error:?}");
    configure(server, "min-replicas-to-write", "0").await;
    let known = store.check(slice::from_ref(&hold.hold)).await.unwrap();
    assert_eq!(known, [HoldStatus::Held]);
}

/// A full server refuses only what needs memory.
#[tokio::test]
async fn an_owner_check_on_a_full_server_is_acknowledged() {
    let replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, LIMIT).await;
    let hold = attempt("k", LockMode::Write);
    assert!(asks(&store, &hold).await);
    configure(replicated.master(), "maxmemory", "1").await;
    let known = store.check(slice::from_ref(&hold.hold)).await.unwrap();
    assert_eq!(known, [HoldStatus::Held]);
}
