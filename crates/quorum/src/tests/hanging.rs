//! Clients over stores that are slow, or hang.

use tower_distributed_lock::{LockClient, LockError};

use super::client::clients;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_nothing_in_the_slowest_store() {
    let (stores, _) = five();
    let [locks, other] = clients(&stores);
    set(&stores[4..], Mood::Slow(100 * MS));
    let released = locks.lock("released").await.unwrap();
    let held = locks.lock("held").await.unwrap();
    let busy = other.lock("busy").await.unwrap();
    let refused = locks.lock("busy").wait(50 * MS).await;
    assert!(
        matches!(refused, Err(LockError::Busy { .. })),
        "{refused:?}"
    );
    busy.release().await.unwrap();
    sleep(SECOND).await;
    released.release().await.unwrap();
    locks.shutdown(10 * SECOND).await.unwrap();
    // From here the process may end.
    for store in &stores {
        assert!(store.memory().is_empty());
    }
    drop(held);
}

/// Here a quorum of quorums: each store goes on after its answers.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_its_stores_go_on_with() {
    let stores: Vec<_> = (0..9).map(|_| Scripted::default()).collect();
    let quorums = stores.chunks(3);
    let quorums = quorums.map(|three| QuorumStore::new(three.to_vec()).unwrap());
    let locks = LockClient::new(QuorumStore::new(quorums).unwrap());
    let guard = locks.lock("key").await.unwrap();
    sleep(SECOND).await;
    stores[0].set(Mood::Slow(100 * MS));
    guard.release().await.unwrap();
    locks.shutdown(10 * SECOND).await.unwrap();
    // From here the process may end.
    for store in &stores {
        assert!(store.memory().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_holds_up_a_shutdown_no_longer_than_a_store_may_take() {
    let (stores, _) = five();
    let [locks] = clients(&stores);
    let guard = locks.lock("key").await.unwrap();
    stores[4].set(Mood::Hanging);
    guard.release().await.unwrap();
    let asked = Instant::now();
    locks.shutdown(10 * SECOND).await.unwrap();
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_ends_its_hold_after_a_forced_unlock_was_answered() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    settle().await;
    stores[3].set(Mood::Slow(2 * SECOND));
    stores[4].set(Mood::Hanging);
    let asked = Instant::now();
    assert!(quorum.force_unlock(&LockKey::new("key")).await.unwrap());
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    assert_eq!(carriers(&stores, &reentrant(1)).await, 2);
    sleep(3 * SECOND).await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 1);
    stores[4].set(Mood::Well);
    settle().await;
    assert_eq!(carriers(&stores, &reentrant(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_audit_names_a_store_that_hangs() {
    let (stores, quorum) = five();
    stores[4].set(Mood::Hanging);
    let audit = tokio::time::timeout(60 * SECOND, quorum.audit()).await;
    let audit = audit.expect("it ends").unwrap();
    let silent: Vec<_> = audit.members.iter().map(Result::is_err).collect();
    assert_eq!(silent, [false, false, false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn an_inspection_waits_no_longer_than_a_store_may_take_and_leaves_no_question_behind() {
    let (stores, quorum) = five();
    granted(&quorum, &reentrant(1)).await;
    settle().await;
    set(&stores[3..], Mood::Hanging);
    let asked = Instant::now();
    let seen = quorum.inspect(&LockKey::new("key")).await.unwrap();
    assert!(seen.is_held());
    assert_eq!(asked.elapsed(), STORE_TIMEOUT);
    assert_eq!(stores[4].hanging(), 0);
    stores[2].set(Mood::Hanging);
    let answer = quorum.inspect(&LockKey::new("key")).await;
    assert_eq!(kind(answer), StoreErrorKind::Unanswered);
}
